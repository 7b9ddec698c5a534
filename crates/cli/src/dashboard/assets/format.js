// Numbers as text, with three significant digits. Rates are decimal, sizes of memory binary, as in `ferroce stat`.

function scaled(value, step, units) {
  let index = 0;
  while (Math.abs(value) >= step * 0.9995 && index < units.length - 1) {
    value /= step;
    index += 1;
  }
  const digits = index === 0 && Number.isInteger(value) ? 0 : value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return [value.toFixed(digits), units[index]];
}

// For axes: 10 Gbit/s, not 10.0 Gbit/s.
export const short = (text) => text.replace(/\.0+(?=\D|$)|(\.\d*?)0+(?=\D|$)/, "$1");

const join = ([number, unit]) => (unit ? `${number} ${unit}` : number);

export const bitsParts = (rate) => scaled(rate, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
export const bits = (rate) => join(bitsParts(rate));
export const countParts = (value) => scaled(value, 1000, ["", "k", "M", "G"]);
export const count = (value) => join(countParts(value));
export const perSecond = (value) => `${count(value)}/s`;
export const memory = (bytes) => join(scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]));
export const whole = (value) => Math.round(value).toLocaleString("en");

export function nanosParts(nanos) {
  if (nanos == null) return ["–", ""];
  return scaled(nanos, 1000, ["ns", "µs", "ms", "s"]);
}
export const nanos = (value) => join(nanosParts(value));

export function duration(seconds) {
  if (seconds < 0) seconds = 0;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

export const clock = (milliseconds) => new Date(milliseconds).toLocaleTimeString("en-GB");
export const qpn = (number) => `0x${number.toString(16).padStart(6, "0")}`;
