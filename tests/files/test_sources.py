"""What is read of files, wherever they are."""

import pytest

from errors import UserError
from files import sources


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_which_may_have_no_end_is_refused(path):
    with pytest.raises(UserError, match=f"^{path}: is a device; name a file$"):
        sources.open_file(path)
