// Colours, and rows of boxes as pixels: a line of pixels is computed once per row and copied as often as the row is high.
const colours = {};  // of the theme, as numbers 0xaabbggrr: what a Uint32Array over pixels takes

const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const fontFamily = () => style("--font");

function rgb(hex) {
  return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
}
const pack = ([r, g, b]) => (0xff000000 | b << 16 | g << 8 | r) >>> 0;
const unpack = pixel => [pixel & 255, pixel >> 8 & 255, pixel >> 16 & 255];
const mix = (from, to, part) => from.map((value, k) => Math.round(value + (to[k] - value) * part));
const css = ([r, g, b]) => `rgb(${r},${g},${b})`;

// Chunks of a device step from darker to lighter.
function tintOf(base, chunk, chunks) {
  if (chunks < 2)
    return base;
  const darkest = chunks > 3 ? -0.34 : 0, part = darkest + (0.62 - darkest) * chunk / (chunks - 1);
  return part < 0 ? mix(base, [0, 0, 0], -part) : mix(base, [255, 255, 255], part);
}

const kCauseHues = ["#8a97a6", "#a9b4bf", "#7a6fb0", "#c98bb0", "#c46a6a", "#5d93b8", "#c2b04a", "#b58d5c", "#93a35a", "#b0a0c8",
                    "#d0a060", "#709070"];

function readColours() {
  const ground = rgb(style("--ground")), chunks = Math.max(...panels.map(panel => panel.chunks));
  colours.ground = pack(ground);
  colours.track = pack(rgb(style("--raised")));
  colours.grid = pack(rgb(style("--grid")));
  colours.text = style("--text");
  colours.muted = style("--muted");
  colours.accent = style("--accent");
  colours.warning = style("--warning");
  colours.line = style("--line");
  const dark = ground[0] < 128, swatch = colour => {
    const light = (0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]) > 140;
    const text = light ? [22, 27, 34] : [255, 255, 255];
    return {css: css(colour), text, textCss: css(text), plain: pack(colour), dim: pack(mix(colour, ground, 0.82)),
            mark: pack(mix(colour, text, 0.45))};
  };
  colours.ops = ops.map(op => Array.from({length: chunks}, (_, chunk) =>
    swatch(tintOf(rgb(op.colour), chunk, op.transfer ? 1 : chunks))));
  colours.causes = kCauseHues.map(hue => {
    const colour = mix(rgb(hue), ground, dark ? 0.5 : 0.45);
    return {css: css(colour), plain: pack(colour)};
  });
}

// Letters as masks: text is blended into pixels.
const glyphs = {size: 0, masks: {}};
function makeGlyphs(size) {
  if (glyphs.size === size && glyphs.font === fontFamily())
    return;
  Object.assign(glyphs, {size, font: fontFamily(), masks: {}});
  const sheet = document.createElement("canvas"), draw = sheet.getContext("2d", {willReadFrequently: true});
  sheet.width = sheet.height = glyphs.height = Math.ceil(size * 1.2);
  for (const letter of "0123456789FBIWRUSv+.") {
    draw.font = `${size}px ${fontFamily()}`;
    draw.textBaseline = "middle";
    draw.fillStyle = "#fff";
    draw.clearRect(0, 0, sheet.width, sheet.height);
    draw.fillText(letter, 0, sheet.height / 2 + 0.5);
    const {data} = draw.getImageData(0, 0, sheet.width, sheet.height);
    const width = /\d/.test(letter) ? draw.measureText("0").width : draw.measureText(letter).width;
    glyphs.masks[letter] = {width, alpha: Uint8Array.from({length: sheet.width * sheet.height}, (_, i) => data[4 * i + 3])};
  }
}
const textWidth = text => [...text].reduce((sum, letter) => sum + glyphs.masks[letter].width, 0);

function blend(pixels, at, colour, alpha) {
  const under = pixels[at], part = alpha / 255, r = under & 255, g = under >> 8 & 255, b = under >> 16 & 255;
  pixels[at] = (0xff000000 | (b + (colour[2] - b) * part) << 16 | (g + (colour[1] - g) * part) << 8 |
                (r + (colour[0] - r) * part)) >>> 0;
}

// The same for many pixels: a packed colour, `part` whole 128ths of it; red and blue are computed in one go.
function blendPacked(pixels, at, colour, part) {
  const under = pixels[at], redBlue = under & 0xff00ff, green = under & 0xff00;
  pixels[at] = 0xff000000 | (redBlue + (((colour & 0xff00ff) - redBlue) * part >> 7)) & 0xff00ff |
               (green + (((colour & 0xff00) - green) * part >> 7)) & 0xff00;
}

function writeText(picture, text, middle, top, colour) {
  const {pixels, width, height} = picture, size = glyphs.height;
  let x = middle - textWidth(text) / 2;
  for (const letter of text) {
    const {alpha, width: advance} = glyphs.masks[letter], left = Math.round(x);
    for (let row = 0; row < size; ++row) {
      const y = top + row;
      if (y < 0 || y >= height)
        continue;
      for (let column = 0; column < size; ++column)
        if (alpha[row * size + column])
          blend(pixels, y * width + left + column, colour, alpha[row * size + column]);
    }
    x += advance;
  }
}

// Which pixels of an operation have the darker colour of its pattern, for readers who cannot go by colours.
const kPatterns = {F: null, B: (x, y) => (x + y) % 6 < 1, I: (x, y) => x % 5 < 1, W: (x, y) => y % 4 < 1,
                   R: (x, y) => (x - y + 6000) % 6 < 1, U: (x, y) => (x + y) % 2 < 1, S: (x, y) => x % 4 < 1 && y % 4 < 2};
function patternOf(op) {
  return view.patterns || ops[op].hatched ? kPatterns[ops[op].letters] || null : null;
}

// The strip of a lane: boxes that are wide enough to be told apart.
function boxStrip(strip, lane, panel, first, last, scale, seams) {
  const {boxes, lit} = panel, columns = strip.length, wide = [];
  for (let i = first; i < last; ++i) {
    const begin = Math.round((lane.start[i] - view.from) * scale);
    const x0 = Math.max(begin, 0), x1 = Math.min(Math.max(Math.round((lane.finish[i] - view.from) * scale), begin + 1), columns);
    if (x1 <= x0)
      continue;
    const tint = colours.ops[boxes.op[i]][boxes.chunk[i]], seam = seams && x1 - x0 > 4 ? 1 : 0;
    strip.fill(lit && !lit[i] ? tint.dim : tint.plain, x0, x1 - seam);
    if (seams && x1 - x0 > 7)
      wide.push(i, x0, x1 - seam);
  }
  return wide;
}

// What boxes thinner than a pixel are drawn as: their parts of the time around each column, by operation, smoothed twice
// over some six boxes, in quarters of columns, so that pixels and boxes make no pattern together.
const kQuarters = 4;
const shares = {sums: new Float64Array(0), used: new Uint8Array(2 * 256)};
let smoothed = new Float64Array(0);
function sharesOf(lane, panel, first, last, scalePerColumn, shownColumns) {
  const {boxes, lit} = panel, {op} = boxes, {start, finish} = lane, {from} = view, {used} = shares;
  const scale = scalePerColumn * kQuarters, columns = shownColumns * kQuarters, kinds = 2 * ops.length, stride = columns + 1;
  if (shares.sums.length < kinds * stride)
    shares.sums = new Float64Array(kinds * stride);
  if (smoothed.length < stride)
    smoothed = new Float64Array(stride);
  const {sums} = shares;
  sums.fill(0, 0, kinds * stride);
  used.fill(0);
  for (let i = first; i < last; ++i) {
    const kind = 2 * op[i] + (lit && !lit[i] ? 1 : 0);
    const x0 = Math.max((start[i] - from) * scale, 0), x1 = Math.min((finish[i] - from) * scale, columns);
    if (x1 <= x0)
      continue;
    used[kind] = 1;
    let at = kind * stride + 1 + (x0 | 0), x = x0, next = (x0 | 0) + 1;
    for (; next < x1; ++next) {
      sums[at++] += next - x;
      x = next;
    }
    sums[at] += x1 - x;
  }
  const kept = [];
  let busy = 0;
  for (let kind = 0; kind < kinds; ++kind) {
    if (!used[kind])
      continue;
    kept.push(kind);
    let sum = 0;
    for (let at = kind * stride + 1; at <= kind * stride + columns; ++at)
      sums[at] = sum += sums[at];
    busy += sum;
  }
  const width = Math.max(Math.round(6 * busy / (last - first)), 2);
  for (const kind of kept) {
    smooth(sums, kind * stride, columns, width);
    smooth(sums, kind * stride, columns, width);
  }
  const until = (kind, column) => sums[kind * stride + column * kQuarters] / kQuarters;
  return {kept, share: (kind, column) => until(kind, column + 1) - until(kind, column)};
}

// Replaces the sums up to each column by those of means over `width` columns.
function smooth(sums, base, columns, width) {
  const before = width >> 1, after = width - before;
  smoothed.set(sums.subarray(base, base + columns + 1));
  let sum = sums[base];
  for (let column = 0; column < columns; ++column) {
    const low = column < before ? 0 : column - before, high = column + after > columns ? columns : column + after;
    sums[base + column + 1] = sum += (smoothed[high] - smoothed[low]) / (high - low);
  }
}

function paintShares(picture, lane, panel, first, last, place, scale) {
  const {pixels, width, height} = picture, {left, columns, top, h} = place, bottom = top + h;
  const {kept, share} = sharesOf(lane, panel, first, last, scale, columns);
  if (!kept.length)  // all boxes take no time
    return;
  const transfer = ops[panel.boxes.op[first]].transfer, from = Math.max(top, 0), until = Math.min(bottom, height);
  const edges = kept.map(() => new Float64Array(columns));  // from the bottom up
  for (let k = 0; k < kept.length; ++k)
    for (let column = 0; column < columns; ++column)
      edges[k][column] = share(kept[k], column) * h + (k ? edges[k - 1][column] : 0);
  if (transfer) {
    const colour = colours.ops[kept[0] >> 1][0][kept[0] & 1 ? "dim" : "plain"], reached = edges[kept.length - 1];
    for (let y = from; y < until; ++y)
      for (let column = 0; column < columns; ++column)
        if (reached[column] > 0)
          blendPacked(pixels, y * width + left + column, colour, Math.min(45 + 83 * reached[column] / h, 128) | 0);
    return;
  }
  // From the highest edge on, so that the soft edge of each band is over the band above it.
  const solid = new Int32Array(columns);
  for (let k = kept.length - 1; k >= 0; --k) {
    const tint = colours.ops[kept[k] >> 1][0], colour = kept[k] & 1 ? tint.dim : tint.plain;
    const pattern = kept[k] & 1 ? null : patternOf(kept[k] >> 1);
    let lowest = from;
    for (let column = 0; column < columns; ++column) {
      const edge = bottom - edges[k][column], line = solid[column] = Math.ceil(edge);
      if (line > edge && line > from && line <= height)
        blendPacked(pixels, (line - 1) * width + left + column, colour, 128 * (line - edge) | 0);
      if (line > lowest)
        lowest = line;
    }
    for (let y = from; y < until; ++y) {
      const at = y * width + left;
      if (y >= lowest && !pattern)
        pixels.fill(colour, at, at + columns);
      else
        for (let column = 0; column < columns; ++column)
          if (y >= solid[column])
            pixels[at + column] = pattern && pattern(column, y) ? tint.mark : colour;
    }
  }
}

// Cuts the corners of a box back to what is under it, and writes patterns.
const kCorner = [[255, 150, 40], [150, 20, 0], [40, 0, 0]];
function finishBox(picture, under, place, x0, x1, rounded, pattern, mark) {
  const {pixels, width, height} = picture, {left, top, h} = place;
  if (pattern)
    for (let y = Math.max(top, 0); y < Math.min(top + h, height); ++y)
      for (let x = x0; x < x1; ++x)
        if (pattern(x, y))
          pixels[y * width + left + x] = mark;
  if (h < 10 || !rounded)
    return;
  for (let dy = 0; dy < 3; ++dy)
    for (let dx = 0; dx < 3; ++dx)
      for (const y of [top + dy, top + h - 1 - dy])
        for (const x of [x0 + dx, x1 - 1 - dx])
          if (y >= 0 && y < height && kCorner[dy][dx])
            blend(pixels, y * width + left + x, unpack(under[x]), kCorner[dy][dx]);
}

// The longest text that fits, the same for all boxes of an operation that are as wide.
function labelsOf(panel) {
  const most = column => column.reduce((a, b) => Math.max(a, b), 0);
  const digits = panel.digits ??= String(most(panel.boxes.microbatch)).length +
    (isSliced(panel) ? 1 + String(most(panel.boxes.slice)).length : 0);  // a point is no wider than a digit
  const stages = panel.stageDigits ??= String(most(panel.boxes.stage)).length;
  const zero = glyphs.masks["0"].width;
  const alone = Math.max(...facts.legend.map(({op}) => ops[op]).filter(op => !op.transfer).map(op => textWidth(op.letters)));
  return ops.map(op => {
    if (op.transfer)
      return [];
    const letter = alone, named = [];
    if (panel.chunks > 1 && op.compute)
      named.push([letter + (stages + digits) * zero + 5, (b, i) => b.stage[i] + op.letters + numberOf(panel, i)]);
    if (op.compute)
      named.push([letter + digits * zero + 5, (b, i) => op.letters + numberOf(panel, i)]);
    return [...named, [alone + 2, () => op.letters]];
  });
}

function paintLane(picture, lane, panel, place, under, labels) {
  const {pixels, width, height} = picture, {left, columns, top, h} = place;
  const scale = columns / (view.to - view.from), [first, last] = boxesIn(lane, view.from, view.to);
  if (last <= first)
    return;
  if (last - first > columns / 2.5)
    return paintShares(picture, lane, panel, first, last, place, scale);
  const strip = under.slice(), wide = boxStrip(strip, lane, panel, first, last, scale, labels !== null);
  for (let y = Math.max(top, 0); y < Math.min(top + h, height); ++y)
    if (!place.over)
      pixels.set(strip, y * width + left);
    else
      for (let x = 0; x < columns; ++x)
        if (strip[x] !== under[x])
          pixels[y * width + left + x] = strip[x];
  const {boxes, lit} = panel, ratio = devicePixelRatio;
  for (let k = 0; k < wide.length; k += 3) {
    const [i, x0, x1] = [wide[k], wide[k + 1], wide[k + 2]], op = boxes.op[i], tint = colours.ops[op][boxes.chunk[i]];
    const exact = (lane.finish[i] - lane.start[i]) * scale;
    finishBox(picture, under, place, x0, x1, exact >= 14, lit && !lit[i] ? null : patternOf(op), tint.mark);
    if (h < 12 * ratio || (lit && !lit[i]))
      continue;
    const label = labels[op].find(([room]) => room <= exact);
    if (!label || x1 - x0 < exact - 2)  // a box that the picture cuts off
      continue;
    const versions = panel.versions && boxes.version[i] >= 0 && h >= 28 * ratio;
    const middle = left + (x0 + x1) / 2, line = Math.round(top + h / 2 - glyphs.height / 2), half = Math.round(glyphs.height * 0.46);
    writeText(picture, label[1](boxes, i), middle, line - (versions ? half : 0), tint.text);
    if (versions && textWidth(versionText(panel, i)) + 4 <= x1 - x0)
      writeText(picture, versionText(panel, i), middle, line + half, tint.text);
  }
}

// Fills idle time with the colour of its cause.
function paintGaps(picture, row, place, under) {
  const {pixels, width, height} = picture, {left, columns, top, h} = place;
  const scale = columns / (view.to - view.from), [first, last] = boxesIn(row.gaps, view.from, view.to), strip = under.slice();
  for (let i = first; i < last; ++i) {
    const x0 = Math.max(Math.round((row.gaps.start[i] - view.from) * scale), 0);
    const x1 = Math.min(Math.round((row.gaps.finish[i] - view.from) * scale), columns);
    if (x1 > x0)
      strip.fill(colours.causes[row.panel.gaps.cause[i]].plain, x0, x1);
  }
  for (let y = Math.max(top, 0); y < Math.min(top + h, height); ++y)
    pixels.set(strip, y * width + left);
  return strip;
}
