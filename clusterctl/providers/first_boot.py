"""What a worker's machine in a cloud does when it boots, before anybody has entered it: nobody may ever come, for its
head may die first. The guard of its lease (`clusterctl/launcher/lease_guard.py`) takes that back."""

MINUTES = 30

SCRIPT = f"""\
#!/bin/sh
# Until clusterctl has entered this machine: shut it down if that does not happen. `shutdown -c` takes it back.
shutdown -h +{MINUTES} || true
# It may have been entered before this ran.
for file in /root/.clusterctl-node/head_address /home/*/.clusterctl-node/head_address; do
    [ ! -e "$file" ] || shutdown -c || true
done
"""
