# The demo, training and serving in a container:
#
#     docker build -t bert .
#     docker run --rm bert                                                      # the short demo
#     docker run --rm -v "$PWD:/data" bert run_classifier.py --data_dir=/data ...
#     docker run --rm -p 8501:8501 -v "$PWD:/data" bert \
#         predict.py --serve=8501 --host=0.0.0.0 --model_dir=/data/export
#
# For NVIDIA GPUs (add --gpus=all to `docker run`):
#
#     docker build --build-arg TENSORFLOW='tensorflow[and-cuda]' -t bert-gpu .
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG TENSORFLOW=tensorflow
WORKDIR /bert
COPY requirements.txt ./
COPY requirements requirements
RUN pip install --no-cache-dir -r requirements.txt -r requirements/serve.txt \
        "${TENSORFLOW}>=2.20,<2.22"
COPY . .
RUN useradd --create-home user && install -d -o user /data
USER user
ENTRYPOINT ["python"]
CMD ["-m", "recipes.demo", "--short", "--output_dir=/data/demo"]
