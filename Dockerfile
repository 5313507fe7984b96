# docker build -t fedroster . && docker run --rm fedroster choose; without a command it runs the demo
FROM python:3.13-slim
WORKDIR /opt/fedroster
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY src src
RUN python requirements/install demo && useradd --create-home runner
USER runner
WORKDIR /home/runner
ENTRYPOINT ["fedroster"]
CMD ["compare", "--task", "digits-logistic", "--out", "runs/demo"]
