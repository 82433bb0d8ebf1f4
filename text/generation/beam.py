"""Writes records with an Apache Beam pipeline, for text and clusters without a shared disk.

text/generation/beam_steps.py has the steps of the pipeline.
"""

import dataclasses
import logging
import os
import re
import shlex

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from errors import UserError
from files import beam_files, sources
from text.generation import beam_steps, outputs, stages
from text.generation.settings import Settings
from text.records.descriptions import Description

# What fails on this machine is raised here too, so its logs would only repeat it. There are
# no triggers; but without the second flag, Beam first tries to download another runner.
_DIRECT = ["--default_sdk_harness_log_level=CRITICAL", "--allow_unsafe_triggers"]
# Errors of workers come as text, with their type, a traceback and the name of the step.
_RAISED = re.compile(
    r"(?:User|ChangedFile|OS|Permission|FileNotFound|BeamIO)Error: "
    r"(.*?)(?: \[while running|$)",
    re.MULTILINE,
)
# The others hand what they do not know to a job server.
_KNOW_THEIR_OPTIONS = ("DirectRunner", "DataflowRunner")


class Pipeline:
    """A pipeline for one set of records. Beam reaches this process's remote files."""

    def __init__(self, runner: str, beam_options: str):
        """`beam_options` are Beam's own flags, as on a command line."""
        try:
            flags = shlex.split(beam_options)
            if runner == "DirectRunner":
                logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
                flags = [*_DIRECT, *flags]
            options = PipelineOptions([f"--runner={runner}", *flags])
            _refuse_unknown(runner, options)
            self._pipeline = beam.Pipeline(options=options)
        except ValueError as error:
            problem = " ".join(str(error).split())
            raise UserError(f"--runner={runner} {beam_options}: {problem}") from error
        self._shares_disks = runner != "DataflowRunner"
        sources.reach_with(beam_files.BeamFiles())

    def generate(
        self, settings: Settings, patterns: list[str], overwrite: bool = False
    ) -> tuple[Description, bool]:
        """Writes the records and their description; returns it, and whether all existed
        already.

        Args:
            settings: with the files of `patterns`.
            patterns: files and globs, which a worker lists again.
        """
        for path in (*settings.input_files, *settings.output_files):
            if not self._shares_disks and not sources.is_remote(path):
                raise UserError(
                    f"{path}: Dataflow's workers cannot reach this machine's files; use "
                    "gs:// for input and output"
                )
        outputs.refuse_overlaps(settings)
        with outputs.lock_outputs(settings):
            tokenizer = settings.make_tokenizer()
            origin = outputs.origin(settings, tokenizer.vocabulary)
            origin[outputs.ENGINE] = "beam"
            if description := outputs.find_finished(settings, origin):
                return description, True
            if not overwrite:
                outputs.refuse_outputs(settings, origin)
            outputs.remove_temporaries(settings)
            beam_files.remove([settings.description_file])
            files = tuple(sorted(tokenizer.files.items()))
            some = dataclasses.replace(settings, input_files=settings.input_files[:3])
            empty = stages.describe(settings, origin, tokenizer, {"instances": 0}, [])
            self._run(beam_steps.Job(some, tuple(patterns), files, empty))
        return Description.read(settings.description_file), False

    def _run(self, job):
        # Processes that the runner starts on this machine must find our modules.
        root = os.path.dirname(os.path.abspath(__file__)).removesuffix(
            os.path.join("", "text", "generation")
        )
        python_path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, python_path)))
        beam_steps.build(self._pipeline, job)
        try:
            self._pipeline.run().wait_until_finish()
        except Exception as error:
            if raised := _RAISED.search(f"{type(error).__name__}: {error}"):
                raise UserError(raised[1]) from error
            raise


def _refuse_unknown(runner, options):
    """Beam ignores flags that it does not know."""
    if runner in _KNOW_THEIR_OPTIONS:
        every = options.get_all_options(retain_unknown_options=True)
        if unknown := sorted(every.keys() - options.get_all_options().keys()):
            named = ", ".join(f"--{name}" for name in unknown)
            raise ValueError(f"Beam has no {named}; check the spelling")
