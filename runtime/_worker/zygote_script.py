"""The zygote as a script, for Pythons that are started by another command than the node agent's.

Modules that such a Python does not have itself, this library among them, come from where this file lies.
"""

import os
import sys

sys.path.pop(0)  # the folder of this file holds no modules for others
sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from runtime._worker.zygote import main

main()
