// A picture's shapes on the screen: as SVG, or on a canvas where there are too many for it.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { Colours, Picture, Shape } from './api';
import { go, place } from './state';
import { ZoomButtons, useZoom } from './zoom';

const MOST_SVG = 5000;
const FONT = "system-ui, 'Segoe UI', 'Noto Sans', sans-serif";

/** The addresses of a picture's images: made of what the server sent, so that nothing is asked for, and given back. */
function useImages(picture: Picture, colours: Colours): Map<Shape, string> {
  const images = useMemo(() => {
    const found = new Map<Shape, string>();
    for (const shape of picture.shapes) {
      if (shape.kind !== 'image') continue;
      const text = (colours['name'] === 'dark' && shape.dark) || shape.png!;
      const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
      found.set(shape, URL.createObjectURL(new Blob([bytes], { type: 'image/png' })));
    }
    return found;
  }, [picture, colours]);
  useEffect(() => () => images.forEach((url) => URL.revokeObjectURL(url)), [images]);
  return images;
}

export function describe(shape: Shape, picture: Picture): string {
  const data = shape.data ?? {};
  if (data['t']) return data['t'];
  const { rows, columns } = picture.grid;
  const row = rows?.[Number(data['r'])];
  const column = columns?.[Number(data['c'])];
  return row !== undefined && column !== undefined ? `${row} ← ${column}: ${data['v']}` : (data['v'] ?? '');
}

export function Scene({ picture, colours }: { picture: Picture; colours: Colours }) {
  const marks = useMemo(() => picture.shapes.filter((shape) => shape.data), [picture]);
  const [at, setAt] = useState(-1);
  const current = marks[Math.min(at, marks.length - 1)];
  const columns = picture.grid.columns?.length ?? 1;

  function move(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
    if (event.key === 'Escape') return setAt(-1);
    const step = steps[event.key];
    if (step === undefined || !marks.length) return;
    event.preventDefault();
    const next = at < 0 ? 0 : at + step;
    if (next >= 0 && next < marks.length) setAt(next);
  }

  /** A mark may open a view of itself: its options are those of the picture. */
  function open(shape: Shape | undefined): void {
    const example = shape?.data?.['e'];
    if (example) return go({ view: 'explain', example, text: '', target: '' });
    const given = shape?.data?.['o'];
    if (!given) return;
    const options = { ...place.value.options };
    for (const [key, value] of new URLSearchParams(given)) options[`o.${key}`] = value;
    go({ options, ...(place.value.view === 'explain' ? { view: 'heads' } : {}) });
  }

  const [spot, setSpot] = useState<{ x: number; y: number } | null>(null);
  const figure = useRef<HTMLDivElement>(null);
  function follow(event: PointerEvent): void {
    const box = figure.current!.getBoundingClientRect();
    const { scrollLeft, scrollTop } = figure.current!;
    setSpot({ x: event.clientX - box.left + scrollLeft, y: event.clientY - box.top + scrollTop });
  }
  const zoom = useZoom(figure, picture);
  const images = useImages(picture, colours);
  const many = picture.shapes.length > MOST_SVG;
  return (
    <>
      <div
        class="figure"
        tabIndex={0}
        role="group"
        aria-label={`${picture.title}; arrow keys move from value to value`}
        onKeyDown={(event) => void (zoom.keys(event) || (event.key === 'Enter' && current ? open(current) : move(event)))}
        ref={figure}
        onPointerMove={follow}
        onPointerLeave={() => {
          setSpot(null);
          setAt(-1);
        }}
        onClick={() => open(current)}
      >
        {many ? (
          <Canvas picture={picture} colours={colours} images={images} marks={marks} current={current} point={setAt} zoom={zoom.factor} />
        ) : (
          <Svg picture={picture} colours={colours} images={images} marks={marks} current={current} point={setAt} zoom={zoom.factor} />
        )}
        {current && spot && (
          <div class="tip" style={{ left: `${Math.min(spot.x + 14, (figure.current?.scrollLeft ?? 0) + (figure.current?.clientWidth ?? 0) - 180)}px`, top: `${spot.y + 16}px` }} aria-hidden="true">
            {describe(current, picture)}
          </div>
        )}
      </div>
      <output aria-live="polite" data-value={current?.data?.['v'] ?? ''}>
        {current ? describe(current, picture) : 'Point at a value, or press the arrow keys.'}
      </output>
      {(picture.width > 1700 || picture.height > 1700 || zoom.factor !== 1) && <ZoomButtons zoom={zoom} box={figure} width={picture.width} />}
    </>
  );
}

interface Drawing {
  picture: Picture;
  colours: Colours;
  images: Map<Shape, string>;
  marks: Shape[];
  current: Shape | undefined;
  point: (mark: number) => void;
  zoom: number;
}

function Svg({ picture, colours, images, marks, current, point, zoom }: Drawing) {
  // the shapes are the same whatever is pointed at: only the outline of the mark changes
  const body = useMemo(() => {
    const numbers = new Map(marks.map((shape, i) => [shape, i]));
    return picture.shapes.map((shape, i) => element(shape, i, colours, numbers.get(shape), images.get(shape)));
  }, [picture, marks, colours, images]);
  return (
    <svg
      width={picture.width * zoom}
      height={picture.height * zoom}
      viewBox={`0 0 ${picture.width} ${picture.height}`}
      role="img"
      aria-label={picture.description}
      font-family={FONT}
      onPointerMove={(event) => {
        const mark = (event.target as Element).getAttribute('data-n');
        point(mark === null ? -1 : Number(mark));
      }}
      onPointerLeave={() => point(-1)}
    >
      <rect width={picture.width} height={picture.height} fill={colours['page']} />
      {body}
      {current?.kind === 'rect' && <rect class="hot" x={current.x} y={current.y} width={current.width} height={current.height} rx={current.radius} fill="none" />}
      {current?.kind === 'dot' && <circle class="hot" cx={current.x} cy={current.y} r={(current.radius ?? 2) + 2} fill="none" />}
    </svg>
  );
}

function element(shape: Shape, key: number, colours: Colours, mark: number | undefined, url?: string) {
  const colour = colours[shape.role];
  const named = mark === undefined ? {} : { 'data-n': mark, 'data-v': shape.data!['v'] };
  if (shape.kind === 'rect')
    return (
      <rect key={key} x={shape.x} y={shape.y} width={shape.width} height={shape.height} rx={shape.radius} fill={colour} {...named} />
    );
  if (shape.kind === 'image')
    return (
      <image
        key={key}
        x={shape.x}
        y={shape.y}
        width={shape.width}
        height={shape.height}
        href={url}
        preserveAspectRatio="none"
        image-rendering="pixelated"
      />
    );
  if (shape.kind === 'dot') return <circle key={key} cx={shape.x} cy={shape.y} r={shape.radius} fill={colour} {...named} />;
  if (shape.kind === 'path') {
    const points = shape.points!.map(([x, y]) => `${x},${y}`).join(' ');
    return shape.filled ? (
      <polygon key={key} points={points} fill={colour} fill-opacity={shape.opacity ?? 1} />
    ) : (
      <polyline key={key} points={points} fill="none" stroke={colour} stroke-width={shape.width} stroke-linejoin="round" stroke-linecap="round" stroke-dasharray={shape.dashed ? '5 4' : undefined} />
    );
  }
  return (
    <text
      key={key}
      x={shape.x}
      y={shape.y}
      fill={colour}
      font-size={shape.size ?? 12}
      font-weight={shape.bold ? 600 : 400}
      text-anchor={shape.anchor ?? 'start'}
      transform={shape.angle ? `rotate(${shape.angle} ${shape.x} ${shape.y})` : undefined}
    >
      {shape.spans ? shape.spans.map(([part, role], i) => <tspan key={i} fill={colours[role]}>{part}</tspan>) : shape.text}
    </text>
  );
}

function Canvas({ picture, colours, images, marks, current, point, zoom }: Drawing) {
  const place = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const canvas = place.current!;
    const scale = Math.min(devicePixelRatio || 1, 16000 / Math.max(picture.width, picture.height));
    canvas.width = picture.width * scale;
    canvas.height = picture.height * scale;
    const pen = canvas.getContext('2d')!;
    pen.scale(scale, scale);
    pen.fillStyle = colours['page']!;
    pen.fillRect(0, 0, picture.width, picture.height);
    let gone = false;
    pen.imageSmoothingEnabled = false;
    // what lies over an image is drawn after it, so all images are waited for
    void Promise.all([...images].map(([shape, url]) => decoded(url).then((image) => [shape, image] as const))).then((found) => {
      if (gone) return;
      const ready = new Map(found);
      for (const shape of picture.shapes) paint(pen, shape, colours, ready.get(shape));
      canvas.dataset['drawn'] = String(picture.shapes.length);
    });
    return () => void (gone = true);
  }, [picture, colours, images]);
  return (
    <canvas
      ref={place}
      role="img"
      aria-label={picture.description}
      width={picture.width}
      height={picture.height}
      style={{ width: `${picture.width * zoom}px`, height: `${picture.height * zoom}px` }}
      data-current={current?.data?.['v'] ?? ''}
      onPointerMove={(event) => {
        const x = event.offsetX * (picture.width / place.current!.clientWidth);
        const y = event.offsetY * (picture.height / place.current!.clientHeight);
        point(marks.findIndex((shape) => covers(shape, x, y)));
      }}
      onPointerLeave={() => point(-1)}
    />
  );
}

async function decoded(url: string): Promise<HTMLImageElement> {
  const image = new Image();
  image.src = url;
  await image.decode();
  return image;
}

function covers(shape: Shape, x: number, y: number): boolean {
  if (shape.kind === 'rect')
    return x >= shape.x! && x < shape.x! + shape.width! && y >= shape.y! && y < shape.y! + shape.height!;
  return shape.kind === 'dot' && Math.hypot(x - shape.x!, y - shape.y!) <= Math.max(shape.radius ?? 0, 4);
}

function paint(pen: CanvasRenderingContext2D, shape: Shape, colours: Colours, image?: HTMLImageElement): void {
  const colour = colours[shape.role]!;
  pen.fillStyle = pen.strokeStyle = colour;
  if (shape.kind === 'rect') pen.fillRect(shape.x!, shape.y!, shape.width!, shape.height!);
  else if (shape.kind === 'image') pen.drawImage(image!, shape.x!, shape.y!, shape.width!, shape.height!);
  else if (shape.kind === 'dot') {
    pen.beginPath();
    pen.arc(shape.x!, shape.y!, shape.radius ?? 2, 0, 2 * Math.PI);
    pen.fill();
  } else if (shape.kind === 'path') {
    pen.beginPath();
    shape.points!.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.globalAlpha = shape.opacity ?? 1;
    if (shape.filled) pen.fill();
    else {
      pen.lineWidth = shape.width ?? 1;
      pen.setLineDash(shape.dashed ? [5, 4] : []);
      pen.stroke();
      pen.setLineDash([]);
    }
    pen.globalAlpha = 1;
  } else {
    pen.save();
    pen.translate(shape.x!, shape.y!);
    pen.rotate(((shape.angle ?? 0) * Math.PI) / 180);
    pen.font = `${shape.bold ? 600 : 400} ${shape.size ?? 12}px ${FONT}`;
    pen.textAlign = shape.anchor === 'middle' ? 'center' : (shape.anchor ?? 'start');
    if (!shape.spans) pen.fillText(shape.text ?? '', 0, 0);
    let x = 0;
    for (const [part, role] of shape.spans ?? []) {
      pen.fillStyle = colours[role]!;
      pen.fillText(part, x, 0);
      x += pen.measureText(part).width;
    }
    pen.restore();
  }
}
