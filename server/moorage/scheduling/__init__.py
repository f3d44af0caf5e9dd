"""The decision core. Pure: events in, actions out, and the clock is an argument.

Nothing here waits, does I/O or knows a framework, so a day of traffic runs in seconds and every rule can be
tested for all orders of events. `engine` is the shell that feeds it and performs what it decides.
"""
