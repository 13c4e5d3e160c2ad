"""What the server stores and answers in English alone, for a page that says it in another language."""

from fastapi import APIRouter
from pydantic import BaseModel

from server.domain.wording.answers import ANSWERS, STATES
from server.domain.wording.clauses import CLAUSES, WORDS

from .door import PeopleRoute

router = APIRouter(prefix="/api", route_class=PeopleRoute, tags=["clauses"])


class Clauses(BaseModel):
    """English to Chinese, with the same `{places}`; and the words that may stand in some of them."""

    clauses: dict[str, str]
    words: dict[str, str]


@router.get("/clauses")
async def list_clauses() -> Clauses:
    """Every clause that is known. The first that fits a text is the one that was said."""
    return Clauses(clauses={**CLAUSES, **ANSWERS}, words={**STATES, **WORDS})
