"""Processes that compute, and the server's side of talking to them.

A worker is started by exec, never by fork, with three inherited sockets: `control` for messages, `handles` to
pass file descriptors, `heartbeat` for signs of life. Each model in it has a lane: a socket of its own and one
piece of shared memory, so a run costs one message each way and no thread hands it to another.
"""
