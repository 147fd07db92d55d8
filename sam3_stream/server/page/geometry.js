// Between pixels of the screen and pixels of the displayed source frame, which is letterboxed in its element.

export function placement(element, width, height) {
  const box = element.getBoundingClientRect();
  const scale = Math.min(box.width / width, box.height / height);
  return {
    scale,
    left: box.left + (box.width - width * scale) / 2,
    top: box.top + (box.height - height * scale) / 2,
  };
}

// The source pixel under a point of the screen; null beside the picture.
export function toSource(element, width, height, clientX, clientY) {
  const { scale, left, top } = placement(element, width, height);
  const x = (clientX - left) / scale;
  const y = (clientY - top) / scale;
  return x >= 0 && y >= 0 && x < width && y < height ? { x, y } : null;
}

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// Whether a point lies in an object, by the even-odd rule over its outlines.
export function isInside(contours, { x, y }) {
  let inside = false;
  for (const contour of contours ?? []) {
    for (let i = 0, j = contour.length - 2; i < contour.length; j = i, i += 2) {
      const [x0, y0, x1, y1] = [contour[i], contour[i + 1], contour[j], contour[j + 1]];
      if (y0 > y !== y1 > y && x < ((x1 - x0) * (y - y0)) / (y1 - y0) + x0) inside = !inside;
    }
  }
  return inside;
}
