"""Parts of the data loader under the names that packages import."""

from . import collate as collate
from . import fetch as fetch
from . import pin_memory as pin_memory
from . import worker as worker
from .worker import MP_STATUS_CHECK_INTERVAL as MP_STATUS_CHECK_INTERVAL
