"""Requests that are computed in pieces: their pieces wait and run in their stead, and are one request to callers."""

from collections.abc import Iterable

from moorage.domain.pieces import pieces_of
from moorage.scheduling.entries import Entry
from moorage.scheduling.state import State


def split(state: State, entry: Entry, most_rows: int) -> list[Entry]:
    """Accept pieces of at most so many rows in the stead of a request, or of a piece."""
    request_id, piece = entry.request.request_id, entry.request.piece
    whole_id = request_id if piece is None else piece.whole.request_id
    pieces = state.split.setdefault(whole_id, {})
    pieces.pop(request_id, None)
    del state.entries[request_id]
    entries = [
        Entry(
            request,
            priority=entry.priority,
            place=entry.place,
            attempts=entry.attempts,
            cohort=entry.cohort,
            tried=entry.tried,
            made_room=entry.made_room,
            preemptions=entry.preemptions,
        )
        for request in pieces_of(entry.request, most_rows, state.new_piece_id)
    ]
    accepted = {it.request.request_id: it for it in entries}
    state.entries.update(accepted)
    pieces.update(accepted)
    return entries


def note_computed(state: State, entries: Iterable[Entry]) -> int:
    """Take note of pieces among these that have their outputs; how many of them do not complete their request."""
    incomplete = 0
    for entry in entries:
        piece = entry.request.piece
        if piece is None:
            continue
        left = state.split.get(piece.whole.request_id, {})
        if left.pop(entry.request.request_id, None) is None or left:
            incomplete += 1
        else:
            del state.split[piece.whole.request_id]
    return incomplete
