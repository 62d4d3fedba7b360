"""What a process owns and borrows, and what it has submitted: decisions only, without sockets, clock, threads or logs.

Messages, deaths, requests and the time go in as method calls; everything the outside must do goes to an `Outbox`. The
caller serializes calls. May import `_core` and `_wire`; `_owner` is the shell around it.
"""
