// Time series with uPlot, in the colors of the page.
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { exact } from "./format";
import { useTheme } from "./theme";

export interface Series {
  name: string;
  color: string; // a variable of the stylesheet
  values: (number | null)[];
}

interface Props {
  steps?: number[]; // possible steps of the axis; default: round numbers
  title: string;
  over: string; // the period that the chart covers, such as hour
  times: number[]; // seconds
  series: Series[];
  show: (value: number) => string;
}

export function Chart({ title, over, times, series, show, steps }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(undefined);
  const legend = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const names = series.map((s) => s.name).join();
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const colorOf = (name: string) => style.getPropertyValue(name).trim();
    const axis: uPlot.Axis = {
      stroke: colorOf("--dim"),
      grid: { stroke: colorOf("--line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui, sans-serif",
    };
    const write = (u: uPlot, at: number | null | undefined) => {
      if (!legend.current) return;
      const n = at ?? u.data[0].length - 1;
      const time = u.data[0][n];
      const parts = series.map((s, i) => {
        const part = document.createElement("span");
        const value = u.data[i + 1]?.[n];
        part.textContent = `${s.name ? s.name + " " : ""}${typeof value === "number" ? show(value) : "–"}`;
        part.style.color = colorOf(s.color);
        return part;
      });
      legend.current.replaceChildren(...(time === undefined ? [] : [at === null || at === undefined ? "now" : exact(time * 1000, false).slice(11), ...parts]));
    };
    const made = new uPlot(
      {
        width: element.clientWidth || 300,
        height: 132,
        padding: [6, 6, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { size: 6 } },
        scales: { // With a single sample, uPlot would show a whole day.
          x: { range: (u, low, high) => (u.data[0].length === 1 ? [low - 600, low] : [Math.min(low, high - 600), high]) }, y: { range: (_, __, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [
          { ...axis, space: 60, size: 24, values: (_, ticks) => ticks.map((t) => exact(t * 1000, false).slice(11, 16)) },
          { ...axis, space: 32, size: 62, ...(steps ? { incrs: steps } : {}), values: (_, ticks) => ticks.map(show) },
        ],
        series: [{}, ...series.map((s) => ({ label: s.name, stroke: colorOf(s.color), width: 1.6, fill: colorOf(s.color) + "1c", points: { show: (u: uPlot) => u.data[0].length < 3 } }))],
        hooks: { setCursor: [(u) => write(u, u.cursor.idx)], setData: [(u) => write(u, undefined)], ready: [(u) => write(u, undefined)] },
      },
      [times, ...series.map((s) => s.values)] as uPlot.AlignedData,
      element,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: 132 }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = undefined;
    };
    // A new theme or other series need a new plot. New values are set below.
  }, [theme, names]);
  useEffect(() => {
    plot.current?.setData([times, ...series.map((s) => s.values)] as uPlot.AlignedData);
  }, [times, series]);
  const last = series.map((s) => `${s.name} ${show(s.values.findLast((v) => v !== null) ?? 0)}`).join(", ");
  return (
    <figure className="chart">
      <figcaption>
        <span>{title}</span>
        <span className="legend" ref={legend} />
      </figcaption>
      {times.length === 0 ? <p className="dim waiting">The first sample arrives within ten seconds.</p> : null}
      <div ref={place} role="img" aria-label={`${title} over the last ${over}, now ${last}`} hidden={times.length === 0} />
    </figure>
  );
}
