"""What the launcher and the daemons of nodes know of each other: what a daemon is started with (`config` of a head,
`order` of a worker), what it writes down (`record`), what starts a head after a reboot (`boot_entry`), and the guard of
a worker's machine that costs (`lease_guard`). Imports neither of the two.
"""
