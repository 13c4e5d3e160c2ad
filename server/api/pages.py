"""The page's files: modules and styles out of `client/`, and Plotly out of its own package."""

import gzip
import hashlib
import mimetypes
from functools import cache
from pathlib import Path

import plotly  # type: ignore[import-untyped]  # the package has no types
from fastapi import APIRouter, Request, Response
from plotly import offline
from starlette.convertors import PathConvertor, register_url_convertor

from .door import OpenRoute
from .problems import Problem

CLIENT = Path(__file__).parents[2] / "client"
SUFFIXES = frozenset({".html", ".js", ".css", ".svg", ".json", ".png", ".ico", ".woff2"})
LONG = "public, max-age=31536000, immutable"

router = APIRouter(route_class=OpenRoute, include_in_schema=False)


@router.get("/vendor/plotly.min.js")
def plotly_js(request: Request) -> Response:
    """Plotly, compressed once. The address may carry the version (`?v=`); then it may be kept for a year."""
    plain, small, tag = _plotly()
    headers = {
        "ETag": tag,
        "Vary": "Accept-Encoding",
        "Cache-Control": LONG if request.query_params.get("v") == plotly.__version__ else "public, max-age=86400",
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(small, headers={**headers, "Content-Encoding": "gzip"}, media_type="text/javascript")
    return Response(plain, headers=headers, media_type="text/javascript")


@cache
def _plotly() -> tuple[bytes, bytes, str]:
    plain = offline.get_plotlyjs().encode()
    return plain, gzip.compress(plain, 6, mtime=0), f'"plotly-{plotly.__version__}"'


@router.get("/")
@router.get("/runs")
@router.get("/runs/{run_id}")
@router.get("/runs/{run_id}/incidents/{incident_id}")
@router.get("/alerts")
@router.get("/alerts/{tab}")
@router.get("/webhooks")
@router.get("/rules")
@router.get("/rules/{rule_id}")
@router.get("/signin")
def page(request: Request) -> Response:
    """The one document of the page; its modules read the address."""
    return _file(request, CLIENT / "index.html")


class _NotTheApi(PathConvertor):
    """Any path outside `/api`, so that a wrong address there is not taken for a file."""

    regex = "(?!api(?:/|$)).*"


register_url_convertor("page", _NotTheApi())


@router.get("/{path:page}")
def client_file(path: str, request: Request) -> Response:
    """A file of the page. Who looks at a wrong address with a browser gets the page, which says so."""
    file = _files().get(path) or _files_now().get(path)
    if file is None and "text/html" in request.headers.get("accept", ""):
        return _file(request, CLIENT / "index.html", status=404)
    if file is None:
        raise Problem(404, "there is no such page", "check the address")
    return _file(request, file)


@cache
def _files() -> dict[str, Path]:
    return _files_now()


def _files_now() -> dict[str, Path]:
    """Every file that may be served, by its address. A request is only ever looked up here, never made into a path."""
    found = (path for path in CLIENT.rglob("*") if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink())
    return {path.relative_to(CLIENT).as_posix(): path for path in found}


def _file(request: Request, path: Path, status: int = 200) -> Response:
    """The file, to be asked for again each time but sent only when it has changed, or where it stands for another one."""
    try:
        body = path.read_bytes()
    except OSError:
        raise Problem(404, "there is no such page", "check the address") from None
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    kind = "text/javascript" if path.suffix == ".js" else mimetypes.guess_type(path.name)[0]
    return Response(body, status, headers=headers, media_type=kind or "application/octet-stream")
