"""The asyncio shell round the scheduling core: one owner task feeds it events and performs its actions."""
