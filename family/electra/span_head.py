"""The head for questions of ELECTRA's release."""

import types

from modeling.objectives.span_head import SpanHead

# google-research/electra@8a46635 finetune/qa/qa_tasks.py, QATask.get_prediction_module.
SPAN_HEAD = SpanHead(
    names=types.MappingProxyType(
        {
            "start": "task_specific/squad/dense",
            "end_hidden": "task_specific/squad/qa_hidden",
            "end": "task_specific/squad/dense_1",
            "answer_hidden": "task_specific/squad/dense_2",
            "answer": "task_specific/squad/dense_3",
        }
    ),
    units=512,
    activation="gelu_erf",
    start_first=True,
    final_sep=True,
    impossible_windows=False,
    answer_dropout=0.0,
    answer_bias=True,
    glorot=True,
    num_starts=20,
    num_ends=20,
)
