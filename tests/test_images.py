"""The decode policy, on image files made here."""

from __future__ import annotations

import io
import random
import struct
import threading
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageFile, PngImagePlugin, features

from recallatk.images import IMAGE_SUFFIXES, DecodePolicy, decode, is_image_name
from recallatk.types import RecallatkError

IGNORE_EXIF = DecodePolicy(exif="ignore")
WHITE = (255, 255, 255)


def encoded(image: Image.Image, fmt: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, fmt, **options)
    return buffer.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, depth: int, colour_type: int, row: bytes, extra: bytes = b"") -> bytes:
    """A PNG of one row, for the kinds that Pillow reads but does not write."""
    header = struct.pack(">IIBBBBB", width, 1, depth, colour_type, 0, 0, 0)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def tiff(tags: dict[int, int], body: bytes) -> bytes:
    """An uncompressed TIFF of one strip, likewise."""
    tags = dict(sorted({**tags, 273: 8, 279: len(body)}.items()))
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<I", 8 + len(body)) + body + struct.pack("<H", len(tags)) + directory + bytes(4)


def pixels(data: bytes, name: str = "x.png") -> np.ndarray:
    decoded = decode(data, name=name)
    assert decoded.image.mode == "RGB"
    return np.asarray(decoded.image)


def conversions(data: bytes, **kwargs: object) -> tuple[str, ...]:
    return decode(data, name="x.png", **kwargs).conversions


def corner() -> Image.Image:
    """Bright at the top left, wider than high."""
    image = Image.new("RGB", (48, 32), (40, 40, 40))
    image.paste((220, 220, 220), (0, 0, 24, 16))
    return image


def test_a_plain_rgb_image_comes_through_without_a_conversion():
    image = Image.effect_noise((20, 10), 90).convert("RGB")
    assert np.array_equal(pixels(encoded(image)), np.asarray(image))
    assert conversions(encoded(image)) == ()


# --- orientation

VIEWER = {  # what a viewer does with the stored image, by tag
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("fmt", ["PNG", "WEBP", "TIFF", "JPEG"])
@pytest.mark.parametrize("tag", VIEWER)
def test_the_exif_orientation_is_applied_or_ignored_as_asked(fmt, tag):
    exif = Image.Exif()
    exif[0x0112] = tag
    options = {"lossless": True} if fmt == "WEBP" else {"quality": 95} if fmt == "JPEG" else {}
    data = encoded(corner(), fmt, exif=exif, **options)
    stored = np.asarray(corner()).astype(int)
    tolerance = 12 if fmt == "JPEG" else 0

    applied, ignored = decode(data, name="x"), decode(data, policy=IGNORE_EXIF, name="x")

    upright = VIEWER[tag](stored)
    assert np.asarray(applied.image).shape == upright.shape
    assert np.abs(np.asarray(applied.image) - upright).max() <= tolerance
    assert np.asarray(ignored.image).shape == stored.shape
    assert np.abs(np.asarray(ignored.image) - stored).max() <= tolerance
    assert applied.conversions == (("EXIF orientation applied",) if tag != 1 else ())
    assert ignored.conversions == ()


def test_a_compressed_tiff_is_turned_like_any_other():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(corner(), "TIFF", exif=exif, compression="tiff_lzw")
    assert np.array_equal(pixels(data), np.rot90(np.asarray(corner()), -1))
    assert np.array_equal(decode(data, policy=IGNORE_EXIF, name="x").image, corner())


def test_an_orientation_outside_1_to_8_turns_nothing():
    exif = Image.Exif()
    exif[0x0112] = 9
    assert np.array_equal(pixels(encoded(corner(), exif=exif)), np.asarray(corner()))
    assert conversions(encoded(corner(), exif=exif)) == ()


def test_damaged_exif_data_costs_the_orientation_not_the_image_and_is_counted():
    text = PngImagePlugin.PngInfo()
    text.add_text("Raw profile type exif", "\nexif\n4\nno hexadecimal digits")
    data = encoded(corner(), pnginfo=text)
    assert conversions(data) == ("damaged EXIF data ignored",)
    assert np.array_equal(pixels(data), np.asarray(corner()))


def test_a_camera_file_with_unreadable_exif_still_decodes_without_a_warning():
    data = encoded(corner(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01")
    assert decode(data, name="x").image.size == (48, 32)


def test_an_unknown_exif_choice_is_refused():
    with pytest.raises(RecallatkError, match="apply, ignore"):
        DecodePolicy(exif="maybe")


# --- sixteen bits

ALL_16_BIT = np.arange(65536, dtype=np.uint16).reshape(256, 256)
SCALED = np.rint(ALL_16_BIT / 257).astype(np.uint8)


@pytest.mark.parametrize(
    ("fmt", "pixel_type"), [("PNG", np.uint16), ("TIFF", np.uint16), ("PPM", np.uint16), ("TIFF", np.int32)]
)
def test_16_bit_grey_is_scaled_by_257_and_rounded_never_clipped(fmt, pixel_type):
    data = encoded(Image.fromarray(ALL_16_BIT.astype(pixel_type)), fmt)
    assert np.array_equal(pixels(data), np.repeat(SCALED[..., None], 3, axis=2))
    assert conversions(data) == ("greyscale converted", "16-bit scaled to 8-bit")


def test_big_endian_16_bit_tiff_is_read_in_its_byte_order():
    image = Image.frombytes("I;16B", (256, 256), ALL_16_BIT.astype(">u2").tobytes())
    assert np.array_equal(pixels(encoded(image, "TIFF"))[..., 0], SCALED)


def test_12_bit_tiff_has_its_own_white():
    body = bytes([0xFF, 0xF0, 0x00, 0x80, 0x0F, 0xFF])  # 4095, 0, 2048, 4095
    data = tiff({256: 4, 257: 1, 258: 12, 259: 1, 262: 1, 277: 1, 278: 1}, body)
    assert pixels(data)[0, :, 0].tolist() == [255, 0, 128, 255]


def test_16_bit_colour_keeps_its_high_byte_and_is_counted():
    row = struct.pack(">6H", 0x80FF, 0, 0xFFFF, 0x00FF, 0x7F80, 0x0100)
    data = png(2, 16, 2, row)
    assert pixels(data).tolist() == [[[128, 0, 255], [0, 127, 1]]]
    assert conversions(data) == ("16-bit colour reduced to 8-bit (high byte)",)


@pytest.mark.parametrize("value", [-1, 65536, 2_000_000])
def test_integers_beyond_16_bits_are_an_error_that_names_them(value):
    image = Image.fromarray(np.array([[0, value]], dtype=np.int32))
    with pytest.raises(RecallatkError, match=rf"^deep\.tif: .*{value}.*16 bits"):
        decode(encoded(image, "TIFF"), name="deep.tif")


@pytest.mark.parametrize("top", [1.0, 255.0])
def test_floating_point_pixels_are_refused_whatever_their_range(top):
    image = Image.fromarray(np.linspace(0, top, 64, dtype=np.float32).reshape(8, 8))
    with pytest.raises(RecallatkError, match=r"^depth\.tif: .*floating-point"):
        decode(encoded(image, "TIFF"), name="depth.tif")


# --- transparency: the hidden colour must not show


def cutout() -> Image.Image:
    """Red at the left; at the right green under full transparency."""
    image = Image.new("RGBA", (4, 2), (220, 30, 30, 255))
    image.paste((30, 220, 30, 0), (2, 0, 4, 2))
    return image


def test_an_alpha_channel_is_composited_on_white():
    image = cutout()
    image.putpixel((1, 0), (0, 0, 0, 128))
    result = pixels(encoded(image))
    assert result[0, 0].tolist() == [220, 30, 30]
    assert result[0, 1].tolist() == [127, 127, 127]
    assert result[0, 2].tolist() == [255, 255, 255]
    assert conversions(encoded(image)) == ("transparency composited on white",)


@pytest.mark.parametrize("fmt", ["WEBP", "TIFF", "JPEG2000"])
def test_alpha_is_composited_in_other_formats_too(fmt):
    options = {"lossless": True, "exact": True} if fmt == "WEBP" else {}
    data = encoded(cutout(), fmt, **options)
    assert pixels(data)[:, 2:].min() == 255
    assert pixels(data)[0, 0].tolist() == [220, 30, 30]


def test_an_opaque_alpha_channel_changes_nothing_and_is_not_counted():
    image = Image.new("RGBA", (4, 4), (20, 240, 30, 255))
    assert pixels(encoded(image))[0, 0].tolist() == [20, 240, 30]
    assert conversions(encoded(image)) == ()


@pytest.mark.parametrize(("fmt", "transparency"), [("PNG", bytes([0, 255])), ("PNG", 0), ("GIF", 0)])
def test_transparent_palette_entries_are_composited(fmt, transparency):
    image = Image.new("P", (4, 2), 1)
    image.putpalette([30, 220, 30, 220, 30, 30] + [0] * 762)
    image.paste(0, (2, 0, 4, 2))
    data = encoded(image, fmt, transparency=transparency)
    assert pixels(data)[0].tolist() == [[220, 30, 30]] * 2 + [list(WHITE)] * 2
    assert conversions(data) == ("palette converted", "transparency composited on white")


@pytest.mark.parametrize(
    ("depth", "colour_type", "row", "transparent", "expected"),
    [
        (8, 0, bytes([16, 32]), (16,), [255, 32]),
        (1, 0, bytes([0b01000000]), (0,), [255, 255]),
        (16, 0, struct.pack(">2H", 0x1234, 0x2020), (0x1234,), [255, 32]),
        (8, 2, bytes([16] * 3 + [32] * 3), (16, 16, 16), [255, 32]),
        (16, 2, struct.pack(">6H", *[0x1234] * 3, *[0x2020] * 3), (0x1234,) * 3, [255, 32]),
    ],
    ids=["L", "1", "16-bit grey", "RGB", "16-bit RGB"],
)
def test_a_transparent_colour_is_composited_without_an_alpha_channel(depth, colour_type, row, transparent, expected):
    data = png(2, depth, colour_type, row, chunk(b"tRNS", struct.pack(f">{len(transparent)}H", *transparent)))
    assert pixels(data)[0, :, 0].tolist() == expected
    assert "transparency composited on white" in conversions(data)


def test_grey_with_alpha_is_composited():
    image = Image.merge("LA", (Image.new("L", (2, 1), 0), Image.new("L", (2, 1), 255)))
    image.putpixel((1, 0), (0, 0))
    assert pixels(encoded(image))[0, :, 1].tolist() == [0, 255]
    assert conversions(encoded(image)) == ("greyscale converted", "transparency composited on white")


def test_premultiplied_alpha_is_undone_before_compositing():
    premultiplied = bytes([100, 50, 0, 128])  # (200, 100, 0) at half strength
    data = tiff({256: 1, 257: 1, 258: 8, 259: 1, 262: 2, 277: 4, 278: 1, 338: 1}, premultiplied)
    assert np.abs(pixels(data)[0, 0].astype(int) - [227, 177, 127]).max() <= 2


# --- modes


@pytest.mark.parametrize(
    ("image", "fmt", "expected", "phrase"),
    [
        (Image.new("CMYK", (8, 8), (0, 240, 240, 10)), "JPEG", (245, 14, 14), "CMYK converted"),
        (Image.new("CMYK", (8, 8), (0, 240, 240, 10)), "TIFF", (245, 14, 14), "CMYK converted"),
        (Image.new("L", (8, 8), 140), "JPEG", (140, 140, 140), "greyscale converted"),
        (Image.new("1", (8, 8), 1), "PNG", WHITE, "greyscale converted"),
        (Image.new("YCbCr", (8, 8), (76, 85, 255)), "TIFF", (254, 0, 0), "YCbCr converted"),
    ],
    ids=["CMYK JPEG", "CMYK TIFF", "L", "1", "YCbCr"],
)
def test_every_mode_becomes_rgb_and_is_counted(image, fmt, expected, phrase):
    data = encoded(image, fmt)
    assert np.abs(pixels(data)[4, 4].astype(int) - expected).max() <= 2
    assert conversions(data) == (phrase,)


def test_a_palette_becomes_its_colours():
    image = Image.new("P", (4, 4), 5)
    image.putpalette([0] * 15 + [30, 20, 240] + [0] * 750)
    assert pixels(encoded(image))[0, 0].tolist() == [30, 20, 240]
    assert conversions(encoded(image)) == ("palette converted",)


def test_lab_becomes_the_same_colour_in_rgb():
    colours = Image.new("RGB", (2, 1), (200, 60, 40))
    colours.putpixel((1, 0), (128, 128, 128))
    srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    as_lab = ImageCms.applyTransform(colours, ImageCms.buildTransform(srgb, lab, "RGB", "LAB"))
    data = encoded(as_lab, "TIFF")
    assert np.abs(pixels(data).astype(int) - np.asarray(colours)).max() <= 3
    assert "LAB converted" in conversions(data)


def test_an_icc_profile_is_ignored_and_counted():
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = encoded(corner(), icc_profile=profile)
    assert np.array_equal(pixels(data), np.asarray(corner()))
    assert conversions(data) == ("ICC profile ignored",)


@pytest.mark.parametrize("fmt", ["GIF", "WEBP", "TIFF", "PNG"])
def test_the_first_of_several_frames_is_used_and_counted(fmt):
    frames = [Image.new("RGB", (16, 16), colour) for colour in ((250, 10, 10), (10, 10, 250))]
    options = {"lossless": True} if fmt == "WEBP" else {}
    data = encoded(frames[0], fmt, save_all=True, append_images=frames[1:], **options)
    assert np.abs(pixels(data)[8, 8].astype(int) - [250, 10, 10]).max() <= 2
    assert "first of several frames used" in conversions(data)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow is built without AVIF")
def test_avif_is_read():
    assert np.abs(pixels(encoded(corner(), "AVIF", quality=95)).astype(int) - np.asarray(corner())).max() < 30


# --- size


def test_between_pillows_warning_and_its_error_an_image_is_decoded_without_a_warning(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    before = list(warnings.filters)
    for fmt in ("PNG", "TIFF", "GIF", "JPEG"):
        assert decode(encoded(Image.new("RGB", (50, 30)), fmt), name="x").image.size == (50, 30)
    assert list(warnings.filters) == before
    assert Image.MAX_IMAGE_PIXELS == 1000


def test_beyond_pillows_error_limit_an_image_is_refused_with_the_limit(monkeypatch):
    data = encoded(Image.new("RGB", (50, 50)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(RecallatkError, match=r"^big\.png: .*more than 2,000 pixels"):
        decode(data, name="big.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert decode(data, name="big.png").image.size == (50, 50)
    assert DecodePolicy().record()["max_pixels"] is None


def test_threads_decode_at_once_without_disturbing_the_warning_filters(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    data = encoded(Image.new("RGB", (50, 30), (1, 2, 3)), "TIFF")
    before = list(warnings.filters)
    failures = []

    def work():
        try:
            for _ in range(30):
                assert decode(data, name="x").image.getpixel((0, 0)) == (1, 2, 3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list(warnings.filters) == before


# --- files that are no images


def noise(fmt: str, size: int = 24, **options: object) -> bytes:
    values = np.random.default_rng(7).integers(0, 256, (size, size, 3), dtype=np.uint8)
    return encoded(Image.fromarray(values), fmt, **options)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html><body>404 not found</body></html>\n", "no image of a known format"),
        (noise("JPEG", 96)[:3000], "truncated"),
        (noise("PNG")[:600], "truncated"),
        (b"\0\0\0\x18ftypheic" + bytes(64), "HEIC"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "no image of a known format"),
    ],
    ids=["empty", "web page", "half a JPEG", "half a PNG", "HEIC", "PostScript"],
)
def test_what_cannot_be_decoded_is_an_error_that_begins_with_the_name(data, reason):
    with pytest.raises(RecallatkError) as caught:
        decode(data, name="gallery/a/02.jpg")
    message = str(caught.value)
    assert message.startswith("gallery/a/02.jpg: ")
    assert reason in message
    assert "--on-error" not in message  # the advice is given where the policy is known
    assert "\n" not in message


def test_the_content_decides_the_decoder_not_the_name():
    assert pixels(encoded(Image.new("RGB", (4, 4), (1, 2, 3))), name="really_png.jpg")[0, 0].tolist() == [1, 2, 3]


def test_tga_and_dib_need_their_names_because_noise_can_look_like_them():
    for fmt, name in (("TGA", "photo.TGA"), ("DIB", "photo.dib")):
        data = encoded(corner(), fmt)
        assert np.array_equal(pixels(data, name=name), np.asarray(corner()))
        with pytest.raises(RecallatkError, match="no image of a known format"):
            decode(data, name="photo.jpg")


def test_when_truncation_is_not_checked_every_image_says_so(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert "LOAD_TRUNCATED_IMAGES" in " ".join(conversions(noise("JPEG", 96)[:3000]))
    assert DecodePolicy().record()["truncated"] != "error"


def test_memory_running_out_is_not_blamed_on_the_file(monkeypatch):
    def no_memory(*_args, **_kwargs):
        raise MemoryError

    monkeypatch.setattr(Image, "open", no_memory)
    with pytest.raises(MemoryError):
        decode(b"x", name="x.png")


FORMATS = {
    "jpeg": noise("JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"),
    "png": noise("PNG"),
    "webp": noise("WEBP"),
    "lossless webp": noise("WEBP", lossless=True),
    "tiff": noise("TIFF"),
    "lzw tiff": noise("TIFF", compression="tiff_lzw"),
    "gif": noise("GIF"),
    "bmp": noise("BMP"),
    "ppm": noise("PPM"),
    "jpeg 2000": noise("JPEG2000"),
    "16-bit png": encoded(Image.fromarray(np.random.default_rng(8).integers(0, 65536, (24, 24), dtype=np.uint16))),
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("kept", [0.3, 0.5, 0.8])
def test_a_file_cut_short_is_refused_in_every_format_never_half_decoded(kind, kept):
    data = FORMATS[kind]
    with pytest.raises(RecallatkError, match=r"^cut\.jpg: "):
        decode(data[: int(len(data) * kept)], name="cut.jpg")


@pytest.mark.filterwarnings("default")  # a warning of Pillow must not become the error that is looked for
@pytest.mark.parametrize("kind", FORMATS)
def test_corrupted_bytes_give_an_image_or_our_error_and_nothing_else(kind, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500_000)  # a corrupt header may ask for gigabytes
    rng = random.Random(f"corrupt {kind}")
    refusals = []
    for _ in range(120):
        data = bytearray(FORMATS[kind])
        for _ in range(rng.choice((1, 2, 8, 40))):
            where = rng.randrange(min(len(data), rng.choice((64, 400, len(data)))))
            data[where] = rng.choice((0, 255, rng.randrange(256)))
        if rng.random() < 0.4:
            del data[rng.randrange(len(data)) :]
        try:
            decoded = decode(bytes(data), name="torn.tif")
        except RecallatkError as error:
            refusals.append(str(error))
        else:
            assert decoded.image.mode == "RGB"
            assert np.asarray(decoded.image).shape[2] == 3
    assert refusals
    assert all(message.startswith("torn.tif: ") and "\n" not in message for message in refusals)


# --- names and the record


def test_image_names_are_recognised_in_any_case_and_hidden_files_are_not():
    for name in (
        "a.jpg",
        "A.JPG",
        "two.dots.v2.jpeg",
        "query/b/Scan.Png",
        "x.TIF",
        "phone.HEIC",
        "@12@.webp",
        "ü ü.bmp",
    ):
        assert is_image_name(name), name
    for name in (
        "._img0.png",
        ".hidden.jpg",
        "a/.x.png",
        "Thumbs.db",
        "desktop.ini",
        ".DS_Store",
        "jpg",
        ".jpg",
        "a.txt",
    ):
        assert not is_image_name(name), name
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in IMAGE_SUFFIXES)


def test_the_policy_states_itself_completely_in_json_values():
    record = DecodePolicy(exif="ignore").record()
    assert record == {
        "library": "pillow",
        "exif": "ignore",
        "background": "white",
        "sixteen_bit": "value/257, rounded",
        "float": "error",
        "icc": "ignored",
        "frames": "first",
        "truncated": "error",
        "max_pixels": 178_956_970,
        "mode": "RGB",
    }
