"""What a client says of a batch, checked. Every complaint is an InvalidRequest that names the field."""

import re
from collections.abc import Mapping

import grpc

from moorage.batches.header import DAY_S, Header, RetryPolicy
from moorage.domain.errors import InvalidRequest
from moorage.repository.names import check_model_name, parse_version
from moorage.rpc.parameters import MAX_PRIORITY
from moorage.rpc.within import within
from moorage.rpc.wording import quote
from moorage_protocol import moorage_v1 as pb

_BATCH_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LOWEST_PRIORITY = 5
_MAX_MS = 365 * 24 * 3600 * 1000
_MAX_ATTEMPTS = 100
_MAX_BACKOFF_MS = 3_600_000
_MAX_LABELS = 64
_MAX_LABEL_BYTES = 4096
_MAX_LIST = 1000
_DEFAULT_LIST = 100
_DEFAULT_RETRY = RetryPolicy()
_CODES = frozenset(code.name for code in grpc.StatusCode if code is not grpc.StatusCode.OK)
_NEWEST = (float("inf"), "")


def batch_id(text: str) -> str:
    """The id. Whether there is such a batch is not known yet."""
    if not _BATCH_ID.fullmatch(text):
        expected = 'from 1 to 128 letters, digits, ".", "_" or "-"'
        raise InvalidRequest("batch_id", expected=expected, got=quote(text))
    return text


def header(message: pb.BatchHeader) -> Header:
    """The header of a batch. Whether there is such a model is not known yet."""
    parse_version(message.model_version)
    timeout_ms = within("timeout_ms", message.timeout_ms, 0, _MAX_MS)
    ttl_ms = within("result_ttl_ms", message.result_ttl_ms, 0, _MAX_MS)
    return Header(
        batch_id=batch_id(message.batch_id),
        model=check_model_name(message.model_name),
        model_version=message.model_version,
        priority=within("priority", message.priority or _LOWEST_PRIORITY, 1, MAX_PRIORITY, zero="for 5"),
        timeout_s=timeout_ms / 1000 or DAY_S,
        ordered=message.ordered,
        durable=message.durable,
        retry=_retry(message.retry),
        result_ttl_s=ttl_ms / 1000 or DAY_S,
        labels=_labels(message.labels),
        item_states=message.item_states,
    )


def _retry(message: pb.BatchRetry) -> RetryPolicy:
    unknown = sorted(set(message.codes) - _CODES)
    if unknown:
        raise InvalidRequest("retry.codes", expected="names of status codes other than OK", got=quote(unknown[0]))
    attempts = message.attempts or _DEFAULT_RETRY.attempts
    first_ms = within("retry.first_backoff_ms", message.first_backoff_ms, 0, _MAX_BACKOFF_MS)
    max_ms = within("retry.max_backoff_ms", message.max_backoff_ms, 0, _MAX_BACKOFF_MS)
    return RetryPolicy(
        attempts=within("retry.attempts", attempts, 1, _MAX_ATTEMPTS, zero="for 3"),
        first_backoff_s=first_ms / 1000 or _DEFAULT_RETRY.first_backoff_s,
        max_backoff_s=max_ms / 1000 or _DEFAULT_RETRY.max_backoff_s,
        codes=tuple(sorted(set(message.codes))) or _DEFAULT_RETRY.codes,
    )


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    found = dict(sorted(labels.items()))
    if len(found) > _MAX_LABELS:
        raise InvalidRequest("labels", expected=f"at most {_MAX_LABELS}", got=str(len(found)))
    size_bytes = sum(len(key.encode()) + len(value.encode()) for key, value in found.items())
    if size_bytes > _MAX_LABEL_BYTES:
        raise InvalidRequest("labels", expected=f"at most {_MAX_LABEL_BYTES} bytes together", got=str(size_bytes))
    return found


def list_limit(request: pb.ListRequest) -> int:
    """The most batches of an answer."""
    return within("limit", request.limit or _DEFAULT_LIST, 1, _MAX_LIST, zero=f"for {_DEFAULT_LIST}")


def page_begin(token: str) -> tuple[float, str]:
    """The time and id of the batch after which a page begins."""
    if not token:
        return _NEWEST
    time, _, last_id = token.partition("/")
    try:
        return float.fromhex(time), batch_id(last_id)
    except (ValueError, OverflowError, InvalidRequest):
        expected = "next_page_token of an earlier answer"
        raise InvalidRequest("page_token", expected=expected, got=quote(token)) from None


def page_token(created_at_s: float, last_id: str) -> str:
    """What page_begin reads."""
    return f"{created_at_s.hex()}/{last_id}"
