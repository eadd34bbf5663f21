"""Parts of the data loader under the names that packages import."""

from . import collate as collate
from . import worker as worker
