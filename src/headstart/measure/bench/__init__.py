"""Decoding with and without drafts, measured: the same requests, the sides taking turns, every turn kept."""

from headstart.measure.bench.clock import Clock
from headstart.measure.bench.engine_side import EngineSide, make_engine_sides
from headstart.measure.bench.journal import Journal
from headstart.measure.bench.records import CostSample, PassSize, PassTally, RequestRecord, Turn
from headstart.measure.bench.run import Bench, Side
from headstart.measure.bench.server_side import ServerSide, token_counter
from headstart.measure.bench.settings import PLAIN, BenchSettings, Cell, FilledCell, fill_cells

__all__ = [
    "PLAIN",
    "Bench",
    "BenchSettings",
    "Cell",
    "Clock",
    "CostSample",
    "EngineSide",
    "FilledCell",
    "Journal",
    "PassSize",
    "PassTally",
    "RequestRecord",
    "ServerSide",
    "Side",
    "Turn",
    "fill_cells",
    "make_engine_sides",
    "token_counter",
]
