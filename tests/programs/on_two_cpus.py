"""Runs a script, with its flags, on a machine that seems to have two CPUs."""

import runpy
import sys

from training.backend import tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
