"""Batches: work of many items that outlives connections and, where asked, the server.

A batch takes items as they come, has the engine run them a window at a time, and keeps what became of each until
somebody has read it. Its journal keeps both: in memory, bounded, or in SQLite.
"""
