# docker build -t halfwise . && docker run --rm -v "$PWD:/work" halfwise fleet run
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m venv /opt/halfwise && /opt/halfwise/bin/pip install --no-cache-dir -c constraints.txt .

FROM python:3.12-slim-bookworm
COPY --from=build /opt/halfwise /opt/halfwise
RUN useradd --create-home --uid 1000 halfwise
USER halfwise
WORKDIR /work
ENV PATH=/opt/halfwise/bin:$PATH PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["halfwise"]
CMD ["--help"]
