"""Frames of an animation as files: a GIF, a video, or a page with a player."""

import subprocess
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.animation import FFMpegWriter, HTMLWriter
from matplotlib.figure import Figure
from PIL import Image

VIDEO = (".mp4", ".mov", ".webm", ".mkv", ".avi")
_EMBEDDED = 2000.0  # MB of an HTML page, above which matplotlib would drop frames
_COLORS = 255  # of a GIF
_SAMPLES = 6  # frames from which its colours are chosen

Frames = Iterable[np.ndarray]


def writer_of(suffix: str, fps: float) -> Callable[[Path, Frames], None]:
    """What writes frames (height, width, 4) to a file with this suffix.

    Raises:
        ValueError: if the suffix is unknown, ffmpeg is needed and not installed, or a GIF cannot
            have this frame rate.
    """
    if suffix == ".gif":
        duration = _duration(fps)
        return lambda path, frames: _write_gif(path, frames, duration)
    if suffix in (".html", ".htm"):
        return lambda path, frames: _write_page(path, frames, fps)
    if suffix in VIDEO:
        if not FFMpegWriter.isAvailable():
            raise ValueError(
                f"Argument `path` must end in .gif or .html here, since {suffix} needs the "
                "program ffmpeg, which is not installed; install it, or save a GIF."
            )
        return lambda path, frames: _write_video(path, frames, fps)
    raise ValueError(
        f"Argument `path` must end in .gif, .html or one of {', '.join(VIDEO)}, but ends in "
        f"{suffix!r}. For a picture use `draw(t)` and `figure.savefig`."
    )


def _duration(fps: float) -> int:
    """Milliseconds for a frame of a GIF, which lasts whole hundredths of a second."""
    hundredths = max(round(100 / fps), 2)
    if abs(100 / fps - hundredths) > 1e-3:
        near = " or ".join(
            f"{100 / k:.4g}" for k in (hundredths + 1, hundredths, hundredths - 1) if k > 1
        )
        raise ValueError(
            "Argument `fps` of a GIF must be 100 divided by an integer, at most 50, but is "
            f"{fps:g}; choose {near}."
        )
    return 10 * hundredths


def _write_gif(path: Path, frames: Frames, duration: int) -> None:
    pictures = [Image.fromarray(frame[..., :3]) for frame in frames]
    # One set of colours for all frames: quicker than one for each, and without flicker.
    some = pictures[:: -(-len(pictures) // _SAMPLES)]
    width, height = some[0].size
    sheet = Image.new("RGB", (width, height * len(some)))
    for k, picture in enumerate(some):
        sheet.paste(picture, (0, k * height))
    colors = sheet.quantize(_COLORS, dither=Image.Dither.NONE)
    reduced = [x.quantize(palette=colors, dither=Image.Dither.NONE) for x in pictures]
    _correct(reduced, pictures[0])
    reduced[0].save(
        path, save_all=True, append_images=reduced[1:], duration=duration, loop=0, optimize=False
    )


def _correct(reduced: list[Image.Image], original: Image.Image) -> None:
    """Give the background, the colour of a corner, its exact value in all frames."""
    color_index, palette = reduced[0].getpixel((0, 0)), reduced[0].getpalette()
    color = original.getpixel((0, 0))
    assert isinstance(color_index, int)
    assert isinstance(color, tuple)
    assert palette is not None
    palette[3 * color_index : 3 * color_index + 3] = [int(x) for x in color]
    for picture in reduced:
        picture.putpalette(palette)


def _write_video(path: Path, frames: Frames, fps: float) -> None:
    rest: Iterator[np.ndarray] = iter(frames)
    first = next(rest)
    height, width = first.shape[:2]
    program = mpl.rcParams["animation.ffmpeg_path"]
    command = [
        program, "-loglevel", "error", "-y", "-f", "rawvideo", "-pixel_format", "rgba",
        "-video_size", f"{width}x{height}", "-framerate", f"{fps:g}", "-i", "-",
        "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", str(path),
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            for frame in chain([first], rest):
                process.stdin.write(frame.tobytes())
            process.stdin.close()
        except BrokenPipeError:
            pass  # ffmpeg says why
        message = process.stderr.read().decode(errors="replace").strip()
        code = process.wait()
    if code:
        raise ValueError(f"ffmpeg cannot write {path.suffix}: {message}; save a GIF instead.")


def _write_page(path: Path, frames: Frames, fps: float) -> None:
    writer = HTMLWriter(fps=fps, embed_frames=True, embed_limit=_EMBEDDED)  # type: ignore[arg-type]
    figure, picture = None, None
    for frame in frames:
        if figure is None:
            height, width = frame.shape[:2]
            figure = Figure(figsize=(width / 100, height / 100), dpi=100)
            picture = figure.figimage(frame)
            writer.setup(figure, str(path), dpi=100)
        picture.set_data(frame)  # type: ignore[union-attr]
        writer.grab_frame()  # type: ignore[no-untyped-call]
    writer.finish()
