"""The four compression codecs of record batches, in Kafka's framing.

In: bytes and a codec id (the low three bits of a batch's attributes). Out: bytes, never more than `limit`: a
decompression bomb raises TooLarge before it is inflated. Malformed for bytes that do not decompress.

Framing that Kafka's clients require:
- snappy: xerial's stream (magic, versions, then blocks of int32 length and raw snappy) from Java; bare raw snappy
  from some others. Both are read; xerial's is written.
- lz4: the frame format, a single frame of independent blocks: Java reads no others.
- gzip and zstd: the standard formats; concatenated members and frames are all read.
"""

from __future__ import annotations

import zlib
from typing import Final

import cramjam
import lz4.frame
import xxhash
import zstandard

from forebay_codecs.errors import Malformed

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
_XERIAL_BLOCK: Final = 32 * 1024
_PIECE: Final = 64 * 1024
_GZIP_PIECE: Final = 16 * 1024
_PIECES_FREE: Final = 64
_BYTES_A_PIECE: Final = 256
"""Members, blocks and frames must hold this many uncompressed bytes on average, after the first _PIECES_FREE. Clients
write none smaller than 1 KiB (Java's snappy before 0.11); a megabyte of empty ones would take seconds to read."""
_LZ4_SHORTEST_HEADER: Final = 7
"""Magic, flags, block descriptor, checksum; with flag 8 set, the content's size precedes the checksum."""
_LZ4_CONTENT_SIZE: Final = 8
_ZSTD_HEADER_LIMIT: Final = 18
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_REPEATED: Final = 1


class TooLarge(ValueError):
    """The decompressed bytes would exceed the limit."""


def decompress(codec: int, data: bytes, limit: int) -> bytes:
    """`data` decompressed. Raises TooLarge beyond `limit` bytes, Malformed for wrong bytes or an unknown codec.

    With codec 0 `data` is returned as it is, whatever its size.
    """
    if codec == NONE:
        return data
    if not data:
        raise Malformed("nothing to decompress")
    if codec == GZIP:
        return _gunzip(data, limit)
    if codec == SNAPPY:
        return _unsnappy(data, limit)
    if codec == LZ4:
        return _unlz4(data, limit)
    if codec == ZSTD:
        return _unzstd(data, limit)
    raise Malformed(f"compression codec {codec} is unknown")


def compress(codec: int, data: bytes) -> bytes:
    """`data` compressed, in the framing that every client reads. ValueError for an unknown codec."""
    if codec == NONE:
        return data
    if codec == GZIP:
        deflate = zlib.compressobj(wbits=31)
        return deflate.compress(data) + deflate.flush()
    if codec == SNAPPY:
        return _snappy(data)
    if codec == LZ4:
        framed: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
        return framed
    if codec == ZSTD:
        return zstandard.compress(data, 3)
    raise ValueError(f"compression codec {codec} is unknown")


def _limit_pieces(count: int, size: int) -> None:
    if count > _PIECES_FREE + size // _BYTES_A_PIECE:
        raise Malformed(f"{count} pieces that hold {size} bytes")


def _gunzip(data: bytes, limit: int) -> bytes:
    view = memoryview(data)
    out = []
    size = 0
    pos = 0
    members = 0
    while pos < len(data):
        members += 1
        _limit_pieces(members, size)
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            # zlib copies whatever follows a member: given all at once, a megabyte of empty members would be copied
            # once for each.
            given = view[pos : pos + _GZIP_PIECE]
            if not given:
                raise Malformed("gzip: cut short")
            try:
                piece = member.decompress(given, limit - size + 1)
            except zlib.error as error:
                raise Malformed(f"gzip: {error}") from error
            size += len(piece)
            if size > limit:
                raise TooLarge(f"more than {limit} bytes")
            out.append(piece)
            pos += len(given) - len(member.unused_data)
    return out[0] if len(out) == 1 else b"".join(out)


def _raw_snappy(block: bytes, limit: int) -> bytes:
    # A raw block begins with its length as a varint: check it before it is believed.
    size = 0
    for position, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            break
    else:
        raise Malformed("snappy: no length")
    if size > limit:
        raise TooLarge(f"more than {limit} bytes")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise Malformed(f"snappy: {error}") from error


def _unsnappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _raw_snappy(data, limit)
    out = []
    size = 0
    pos = len(_XERIAL_HEADER)
    if len(data) < pos:
        raise Malformed("snappy: no header")
    blocks = 0
    while pos < len(data):
        blocks += 1
        _limit_pieces(blocks, size)
        block = int.from_bytes(data[pos : pos + 4], "big")
        pos += 4
        if pos + block > len(data):
            raise Malformed("snappy: a block is cut short")
        piece = _raw_snappy(data[pos : pos + block], limit - size)
        size += len(piece)
        out.append(piece)
        pos += block
    return b"".join(out)


def _snappy(data: bytes) -> bytes:
    out = [_XERIAL_HEADER]
    for pos in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[pos : pos + _XERIAL_BLOCK]))
        out.append(len(block).to_bytes(4, "big"))
        out.append(block)
    return b"".join(out)


def mend_lz4(data: bytes) -> bytes:
    """An lz4 frame in Kafka's old framing, whose header checksum wrongly covers the magic, with the right checksum.

    Brokers ignore that checksum in messages of format v0 (KAFKA-3160); the message's CRC protects the content. Data too
    short for a header is returned as it is.
    """
    if len(data) < _LZ4_SHORTEST_HEADER:
        return data
    at = _LZ4_SHORTEST_HEADER - 1 + (8 if data[4] & _LZ4_CONTENT_SIZE else 0)
    checksum = xxhash.xxh32_intdigest(data[4:at]) >> 8 & 0xFF
    return data[:at] + bytes((checksum,)) + data[at + 1 :]


def _unlz4(data: bytes, limit: int) -> bytes:
    frame = lz4.frame.LZ4FrameDecompressor()
    # The decompressor allocates all it may return up front, and allocating 64 MiB takes longer than reading a small
    # batch. lz4 expands at most 255 to 1.
    max_size = min(limit, 255 * len(data))
    try:
        out: bytes = frame.decompress(data, max_size + 1)
    except RuntimeError as error:
        raise Malformed(f"lz4: {error}") from error
    if len(out) > limit:
        raise TooLarge(f"more than {limit} bytes")
    if not frame.eof:
        raise Malformed("lz4: cut short")
    if frame.unused_data:
        raise Malformed("lz4: bytes behind the frame")
    return out


def _zstd_frame(data: bytes, pos: int, limit: int) -> tuple[int, int]:
    """(end, number of blocks) of the frame at `pos`; the end is past that of `data` if the frame is cut short.

    A frame is a header, blocks and, if the header says so, a 4-byte checksum. A block is 3 bytes, little-endian (1 bit:
    last block; 2 bits: type; 21 bits: size), then `size` bytes, or one byte to repeat (RFC 8878).
    """
    start = data[pos : pos + _ZSTD_HEADER_LIMIT]
    if int.from_bytes(start[:4], "little") & ~0xF == _ZSTD_SKIPPABLE:
        return pos + 8 + int.from_bytes(start[4:8], "little"), 0
    pos += zstandard.frame_header_size(start)
    checksum = zstandard.get_frame_parameters(start).has_checksum
    last = 0
    blocks = 0
    while not last and pos < len(data):
        blocks += 1
        _limit_pieces(blocks, limit)
        block = int.from_bytes(data[pos : pos + 3], "little")
        last = block & 1
        pos += 3 + (1 if block >> 1 & 3 == _ZSTD_REPEATED else block >> 3)
    # A frame without its last block lacks at least one byte.
    return pos + (4 if checksum else 0) if last else max(pos, len(data) + 1), blocks


def _unzstd(data: bytes, limit: int) -> bytes:
    out = []
    size = 0
    reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
    end = 0
    pieces = 0
    try:
        # The reader mistakes a frame that is cut short for a shorter one, so ends are checked here.
        while end < len(data):
            end, blocks = _zstd_frame(data, end, limit)
            pieces += 1 + blocks
            _limit_pieces(pieces, limit)
        if end > len(data):
            raise Malformed("zstd: cut short")
        while piece := reader.read(min(_PIECE, limit - size + 1)):
            size += len(piece)
            if size > limit:
                raise TooLarge(f"more than {limit} bytes")
            out.append(piece)
    except zstandard.ZstdError as error:
        raise Malformed(f"zstd: {error}") from error
    _limit_pieces(pieces, size)
    return out[0] if len(out) == 1 else b"".join(out)
