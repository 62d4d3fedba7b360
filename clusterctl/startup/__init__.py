"""What the launcher and the daemons of nodes know of each other: what a daemon is started with (`config` of a head,
`order` of a worker), what it writes down (`record`), what starts a head after a reboot (`boot_entry`), the guard of a
worker's machine that costs (`lease_guard`), and how a machine hears that it is taken back (`notices`). Imports neither
of the two.
"""
