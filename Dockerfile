# The server: API, page and worker in one process, as a user without rights. The trainer agent is not run from here: install the wheel.
FROM python:3.12-slim

ARG APP_UID=10001
ENV VIRTUAL_ENV=/opt/venv
ENV PATH=/opt/venv/bin:$PATH
ENV PYTHONUNBUFFERED=1
ENV PIP_NO_CACHE_DIR=1
ENV UV_NO_CACHE=1
ENV LOSSGUARD_DATA_DIR=/var/lib/lossguard
ENV LOSSGUARD_HOST=0.0.0.0
ENV LOSSGUARD_PORT=8787

WORKDIR /opt/lossguard
COPY pyproject.toml constraints.txt README.md ./
COPY trainer_agent ./trainer_agent
COPY migrations ./migrations
COPY client ./client
COPY server ./server

RUN python3 -m venv "$VIRTUAL_ENV"
RUN pip install --quiet --disable-pip-version-check -c constraints.txt uv
# Compiled here, because the user of the container cannot write beside the code: each start would compile all of it anew.
RUN uv pip install --quiet --compile-bytecode -c constraints.txt -e ".[server]"
RUN python3 -m compileall -q server trainer_agent migrations
RUN install -d -m 0700 -o "$APP_UID" "$LOSSGUARD_DATA_DIR"

USER 10001
VOLUME /var/lib/lossguard
EXPOSE 8787
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
  CMD ["python3", "-c", "import os, urllib.request; urllib.request.urlopen(f\"http://127.0.0.1:{os.environ['LOSSGUARD_PORT']}/api/health\", timeout=4)"]
CMD ["python3", "-m", "server", "serve"]
