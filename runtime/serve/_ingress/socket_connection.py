"""One WebSocket: uvicorn's protocol for `websockets`, without its weakness for openings that cannot be understood."""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class SocketConnection(WebSocketsSansIOProtocol):
    """Takes over the transport of an `HttpConnection`."""

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is not None:
            super().handle_parser_exception()
            return
        if not self.handshake_initiated:
            self.transport.write(
                b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            )
        self.transport.close()
