"""A whole task in one file: is the number of a's in the text even or odd?"""

import dataclasses
import pathlib

import command_line
import options
from training import metrics
from training.run.settle import TrainableModel
from modeling.objectives import tasks
from text.records.rows import Field, Row
from training.finetuning import finetune
from training.finetuning.task import Task


@dataclasses.dataclass(frozen=True)
class Options(finetune.FineTuningOptions):
    data_dir: str = options.field(help="Folder of train.txt, dev.txt and test.txt.")


class Parity(Task):
    fields = {"label_ids": Field()}

    def __init__(self, flags, tokenizer):
        super().__init__(tokenizer)
        self.folder = pathlib.Path(flags.data_dir)
        self.max_num_tokens = flags.max_seq_length - 2

    def read(self, split):
        return (self.folder / f"{split}.txt").read_text().splitlines()

    def featurize(self, example, split):
        vocabulary = self.tokenizer.vocabulary
        ids = self.tokenizer.encode(example)[: self.max_num_tokens]
        ids = [vocabulary.cls_id, *ids, vocabulary.sep_id]
        yield Row(ids, [0] * len(ids), {"label_ids": example.count("a") % 2})

    def objective(self):
        return tasks.Classification(2)

    def score(self, predictions):
        gold = [example.count("a") % 2 for example in predictions.examples]
        predicted = predictions.outputs["logits"].argmax(axis=1)
        return {"accuracy": metrics.accuracy(gold, predicted)}

    def prediction_files(self, predictions):
        answers = predictions.outputs["logits"].argmax(axis=1)
        return {"parity.txt": "".join(f"{answer}\n" for answer in answers)}


def main(flags):
    model = TrainableModel(flags)
    finetune.finetune(Parity(flags, model.tokenizer), model)


if __name__ == "__main__":
    command_line.run(main, Options)
