"""One connection of the server: which requests it takes apart, and how long it may last."""

import re

import h11
from h11._receivebuffer import ReceiveBuffer  # h11 has no other way to see a line's end
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10  # for the head of a request to arrive
MAX_CONNECTIONS = 512  # a process can often have only 1,024 files open

_ODD_LINE_END = re.compile(rb"(?<!\r)\n|\n[ \t]")


class _Requests(h11.Connection):
    """Refuses a request that a proxy before us may end elsewhere than we do.

    What follows its end is the next request, which may be one that the proxy never saw. h11
    refuses the rest of such requests itself.

    Source: RFC 9112, 2.2 (bare LF), 5.2 (folded lines), 6.1 and 6.3 (two lengths), 7.1.2
        (lines after the last chunk, which no client of ours sends).
    """

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self._receive_buffer = _Lines()

    def next_event(self):
        if self.their_state is h11.IDLE:
            head, _, _ = self.trailing_data[0].partition(b"\r\n\r\n")
            if _ODD_LINE_END.search(head):
                raise h11.RemoteProtocolError("a line ends or continues in an old way")
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            is_old = event.http_version < b"1.1"
            if b"transfer-encoding" in names and (is_old or b"content-length" in names):
                raise h11.RemoteProtocolError("the length of the body is ambiguous")
        if isinstance(event, h11.EndOfMessage) and event.headers:
            raise h11.RemoteProtocolError("there are lines after the last chunk")
        return event


class _Lines(ReceiveBuffer):
    """Refuses a chunked body that ends with a bare LF."""

    def maybe_extract_lines(self):
        if self._data[:1] == b"\n":
            raise h11.RemoteProtocolError("a body ends in an old way")
        return super().maybe_extract_lines()


class Connection(H11Protocol):
    """Closes a connection that sends no request or exceeds the limit, to free its slot."""

    _end = None  # the timer that ends it before its request is complete

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.conn = _Requests(h11.SERVER)  # what it raises is answered with 400

    def connection_made(self, transport):
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._limit()

    def data_received(self, data):
        super().data_received(data)
        self._limit()

    def _limit(self):
        """Limits the time for each head, and for the rest of a body answered early.

        uvicorn's own limit, between two requests, ends with the first byte.
        """
        is_asked = self.cycle is not None and not self.cycle.response_complete
        if is_asked and self._end is not None:
            self._end.cancel()
            self._end = None
        elif not is_asked and self._end is None:
            self._end = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
