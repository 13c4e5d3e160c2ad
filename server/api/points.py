"""Curves: every stored point as JSON, and the thinned curve as float64 for the chart."""

import json
import struct
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection

from server.services.errors import NotFound
from server.store import bands, downsample
from server.store import points as store
from server.store import runs as run_store
from server.store.bands import Band
from server.store.downsample import Thinned
from server.store.points import Trace
from trainer_agent.wire import series as names
from trainer_agent.wire.codec import number_to_json

from .deps import MAX_INTEGER, In, RunId
from .door import PeopleRoute

router = APIRouter(prefix="/api/runs/{run_id}", route_class=PeopleRoute, tags=["points"])

SeriesName = Annotated[str, Query(max_length=names.MAX_NAME_LENGTH, pattern=r"^[a-z0-9_.\-]+(/[a-z0-9_.\-]+)+$")]
Step = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]
Rank = Annotated[int | None, Query(ge=0, le=1_000_000)]


class PointOut(BaseModel):
    """One stored point."""

    model_config = ConfigDict(ser_json_inf_nan="strings")
    segment: int
    rank: int
    seq: int
    step: int
    time: float
    value: float
    superseded: bool


class Points(BaseModel):
    """Stored points of one series."""

    series: str
    points: list[PointOut]


@router.get("/points")
def read_points(
    *,
    run_id: RunId,
    context: In,
    series: SeriesName,
    from_step: Step = None,
    to_step: Step = None,
    rank: Rank = None,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 10_000,
) -> Points:
    """Every stored point of the stretch, nothing thinned; the first `limit` of them."""
    with context.database.reading() as connection:
        _revision(connection, run_id)
        traces = store.read_points(connection, run_id, series, rank=rank, from_step=from_step, to_step=to_step)
    found = [point for trace in traces for point in _points(trace)]
    found.sort(key=lambda point: (point.segment, point.rank, point.step))
    return Points(series=series, points=found[:limit])


def _points(trace: Trace) -> Iterator[PointOut]:
    for seq, step, time, value in zip(
        trace.seq.tolist(), trace.step.tolist(), trace.time.tolist(), trace.value.tolist(), strict=True
    ):
        yield PointOut(
            segment=trace.segment,
            rank=trace.rank,
            seq=int(seq),
            step=int(step),
            time=time,
            value=value,
            superseded=trace.superseded,
        )


@router.get("/series", response_class=Response, responses={200: {"content": {"application/octet-stream": {}}}})
def read_series(
    *,
    run_id: RunId,
    context: In,
    name: SeriesName,
    from_step: Step = None,
    to_step: Step = None,
    points: Annotated[int, Query(ge=16, le=20_000)] = 1_000,
    ranks: Annotated[int, Query(ge=1, le=1_000_000)] = 1_000_000,
) -> Response:
    """The curve for drawing; the layout is in docs/api.md. Of more than `ranks` ranks only rank 0 and the bands are told."""
    with context.database.reading() as connection:
        revision = _revision(connection, run_id)
        traces = store.read_points(connection, run_id, name, from_step=from_step, to_step=to_step)
    return drawn(name, revision, traces, points, ranks)


def drawn(name: str, revision: int, traces: store.Traces, points: int, ranks: int = 1_000_000) -> Response:
    """Traces as the chart takes them, thinned to `points` each."""
    spans = bands.over_ranks(traces, points)
    thinned = [(trace, downsample.thin(trace.step, trace.value, points)) for trace in traces]
    shown = [each for each in thinned if each[0].rank == 0] if len({trace.rank for trace in traces}) > ranks else thinned
    header = {
        "series": name,
        "unit": names.unit(name),
        "revision": revision,
        "traces": [_trace_header(trace, thin) for trace, thin in shown],
        "bands": [_band_header(band) for band in spans],
        "nonfinite": [mark for trace, thin in thinned for mark in _marks(trace, thin)],
    }
    return Response(pack(header, [thin for _, thin in shown], spans), media_type="application/octet-stream")


def pack(header: dict[str, Any], curves: list[Thinned], spans: list[Band]) -> bytes:
    """The octets: length, header padded to a multiple of 8, then the columns of each curve and band as little-endian float64."""
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % 8)
    body = [part for thin in curves for part in (thin.step, thin.value)]
    body += [part for band in spans for part in (band.step, band.low, band.high, band.low_rank, band.high_rank)]
    return b"".join([struct.pack("<I", len(text)), text, *(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in body)])


def _trace_header(trace: Trace, thin: Thinned) -> dict[str, Any]:
    return {
        "segment": trace.segment,
        "rank": trace.rank,
        "superseded": trace.superseded,
        "n": int(thin.step.size),
        "count": int(trace.step.size),
    }


def _band_header(band: Band) -> dict[str, Any]:
    return {"segment": band.segment, "superseded": band.superseded, "ranks": band.ranks, "n": int(band.step.size)}


def _marks(trace: Trace, thin: Thinned) -> Iterator[dict[str, Any]]:
    where = {"segment": trace.segment, "rank": trace.rank, "superseded": trace.superseded}
    for step, value in zip(thin.nonfinite_step.tolist(), thin.nonfinite_value.tolist(), strict=True):
        yield {"step": int(step), "value": number_to_json(value), **where}


def _revision(connection: Connection, run_id: str) -> int:
    run = run_store.get(connection, run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}", "open the list of runs")
    return run.revision
