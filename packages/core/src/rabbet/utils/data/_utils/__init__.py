"""Parts of the data loader under the names that packages import."""

from . import collate as collate
from . import pin_memory as pin_memory
from . import worker as worker
