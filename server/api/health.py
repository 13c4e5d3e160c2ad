"""Whether the server is there."""

from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter
from pydantic import BaseModel

from .door import OpenRoute

router = APIRouter(prefix="/api", route_class=OpenRoute, tags=["health"])


class Health(BaseModel):
    """That the server answers."""

    status: str
    version: str


def server_version() -> str:
    """The installed version; of a bare checkout, that it is one."""
    try:
        return version("lossguard")
    except PackageNotFoundError:
        return "checkout"


@router.get("/health")
async def health() -> Health:
    """That the server answers."""
    return Health(status="ok", version=server_version())
