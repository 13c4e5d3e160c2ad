"""Every message that can be made survives the wire."""

import contextlib
import dataclasses
import json
import math
import types
import typing
from enum import StrEnum

from hypothesis import given
from hypothesis import strategies as st

from trainer_agent.wire import codec
from trainer_agent.wire.messages import Batch, Heartbeat, Reply, RunStart

TEXT = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00"), max_size=20)
WHOLE = st.integers(0, codec.MAX_STEP)
SCALARS = {str: TEXT, int: WHOLE, float: st.floats(), bool: st.booleans(), type(None): st.none()}


def strategy(annotation) -> st.SearchStrategy:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([strategy(choice) for choice in arguments])
    if origin is tuple:
        return st.lists(strategy(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(TEXT, strategy(arguments[1]), max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return st.sampled_from(annotation)
    if dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        return st.builds(annotation, **{field.name: strategy(hints[field.name]) for field in dataclasses.fields(annotation)})
    return SCALARS[annotation]


MESSAGES = st.one_of([strategy(kind) for kind in (RunStart, Batch, Heartbeat, Reply)])


@given(MESSAGES)
def test_a_message_comes_back_as_it_was_sent(message):
    sent = codec.encode(message)
    back = codec.decode(type(message), sent)
    assert codec.encode(back) == sent
    json.loads(sent, parse_constant=lambda text: (_ for _ in ()).throw(AssertionError(f"bare {text} on the wire")))


@given(st.floats())
def test_a_float_keeps_its_value(value):
    back = codec.number_from_json(json.loads(json.dumps(codec.number_to_json(value), allow_nan=False)))
    assert back == value or (math.isnan(back) and math.isnan(value))
    assert math.copysign(1, back) == math.copysign(1, value) or math.isnan(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["run_id", "seq", "type", "record", "columns", "next_seq"]), inner)
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from([RunStart, Batch, Heartbeat, Reply]))
def test_any_json_is_a_message_or_a_wire_error(value, kind):
    with contextlib.suppress(codec.WireError):
        codec.decode(kind, json.dumps(value))
