"""The controller of serving as an actor: its loop, its store, and how programs reach it. What it decides is in
`runtime.serve._core`."""
