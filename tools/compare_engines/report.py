"""What compare.py measured, as a table for the eyes, Markdown for the README, and a plot.

A figure's values stand round by round, so a ratio is that of one round, where both engines met the same machine;
its median, least and most are those of the rounds. "better": "more" (a rate) or "less" (a time, memory).
"""

import statistics


def summary(values):
    ordered = sorted(values)
    return {"median": statistics.median(ordered), "min": ordered[0], "max": ordered[-1], "n": len(ordered), "values": list(values)}


def between(values, places):
    low, high = f"{min(values):.{places}f}", f"{max(values):.{places}f}"
    return low if low == high else f"{low} to {high}"


def figures(rows, values, parts):
    """rows: (key, label, unit, better); values: {key: {engine: [a value a round]}}; parts: {key: [of llmgen's floor a round]}."""
    out = {}
    for key, label, unit, better in rows:
        engines = {name: v for name, v in values[key].items() if v}
        mine = engines.get("llmgen")
        out[key] = {
            "label": label, "unit": unit, "better": better,
            "engines": {name: summary(v) for name, v in engines.items()},
            "ratios": {name: summary([a / b for a, b in zip(mine, v)]) for name, v in engines.items() if mine and name != "llmgen"},
            "of_floor": summary(parts[key]) if parts.get(key) else None,
        }
    return out


def number(value):
    """Three digits that mean something: 3804, 46.3, 0.38."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(s, places=None):
    """A median with the least and the most, where there are several values."""
    shown = number if places is None else lambda v: f"{v:.{places}f}"
    return shown(s["median"]) + (f" ({shown(s['min'])}–{shown(s['max'])})" if s["n"] > 1 else "")


def label_of(figure):
    return f"{figure['label']}, {figure['unit']}" + (" (less is better)" if figure["better"] == "less" else "")


def cells(report, value):
    names = list(report["engines"])
    peers = [n for n in names if n != "llmgen"] if "llmgen" in names else []
    floors = any(figure["of_floor"] for figure in report["figures"].values())
    rows = [["", *names, *(f"llmgen ÷ {p}" for p in peers), *(["of the floor"] if floors else [])]]
    for figure in report["figures"].values():
        rows.append([label_of(figure), *(value(figure["engines"][n]) if n in figure["engines"] else "–" for n in names),
                     *(spread(figure["ratios"][p], 2) if p in figure["ratios"] else "–" for p in peers),
                     *([f"{100 * figure['of_floor']['median']:.0f} %" if figure["of_floor"] else "–"] if floors else [])])
    return rows


def limits_text(report):
    """What the floor's column stands on."""
    about = report["engines"].get("llmgen", {})
    reads, peaks, size = about.get("read_bytes_per_s"), about.get("matmul_flop_per_s"), about.get("weight_bytes")
    if not reads or not size:
        return ""
    text = (f"Of the floor: what part of the machine's limit llmgen reached, by limits measured right before and after each of its runs. "
            f"Decode: {size / 1e6:.0f} MB of weights, and keys and values, a step at the read bandwidth, "
            f"{between([r / 1e9 for r in reads], 1)} GB/s in these runs")
    if peaks:
        text += f". Prefill: the model's multiply-adds at the matmul peak, {between([p / 1e12 for p in peaks], 2)} TFLOP/s"
    return text + "."


def ids_text(report):
    """What the engines' greedy ids were worth, one sentence an engine."""
    return [f"{name}: {entry['equal_leading_tokens']} of {entry['tokens']} greedy ids equal to transformers' in f32 up to the first near-tie, "
            f"chosen tokens at most {entry['largest_margin']:.2f} below the best logit: {'sound' if entry['sound'] else 'WRONG'}"
            for name, entry in report["ids"].items()]


def conditions(report):
    part = report["others_part_of_cpu"]
    beside = "" if part is None else f"; other programs took {100 * part:.0f} % of the CPUs" + (": not to be quoted" if part > 0.1 else "")
    machine = report["engines"].get("llmgen", {}).get("features") or report["cpu"]
    return f"{report['model']}, bf16, {report['threads']} threads, {machine}, {report['date']}, `{report['command']}`{beside}"


def text(report):
    rows = cells(report, spread)
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    table = "\n".join("  ".join(cell.ljust(w) if c == 0 else cell.rjust(w) for c, (cell, w) in enumerate(zip(row, widths))) for row in rows)
    lines = [conditions(report), f"{report['rounds']} rounds, the engines in turn; medians (least–most)", "", table, "", limits_text(report), *ids_text(report)]
    return "\n".join(line for line in lines if line is not None) + "\n"


def markdown(report):
    rows = cells(report, lambda s: number(s["median"]))
    head = "| " + " | ".join(rows[0]) + " |\n|---|" + "---:|" * (len(rows[0]) - 1)
    table = "\n".join([head, *("| " + " | ".join(row) + " |" for row in rows[1:])])
    sound = all(entry["sound"] for entry in report["ids"].values())
    versions = ", ".join(about["version"] for name, about in report["engines"].items() if name != "llmgen")
    return (f"{conditions(report)}: all engines in turn on the same weights and prompts, {report['rounds']} rounds; medians, and of the ratios the least "
            f"and the most of a round. Greedy ids checked: {'all engines sound' if sound else 'NOT ALL SOUND'}. Beside {versions}.\n\n"
            f"{table}\n\n{limits_text(report)}\n")


def plot(report):
    """Bars of tokens a second, each load on a scale of its own; plain SVG that reads on white and on black."""
    names, rates = list(report["engines"]), [f for f in report["figures"].values() if f["unit"] == "tok/s"]
    colours = {"llmgen": "#2166c2", "llama.cpp": "#d9730d", "transformers": "#8d8a84"}
    width, bar, gap = 640, 18, 16
    height = 30 + len(rates) * (len(names) * bar + gap + 18)
    out = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' font-family='system-ui, sans-serif' font-size='13'>",
           f"<rect width='{width}' height='{height}' fill='#fbfaf8'/>"]
    y = 24
    for figure in rates:
        most = max(s["max"] for s in figure["engines"].values())
        out.append(f"<text x='12' y='{y}' font-weight='600' fill='#1b1b1a'>{figure['label']}, tokens per second</text>")
        y += 8
        for n in names:
            s, scale = figure["engines"][n], (width - 250) / most
            out.append(f"<text x='100' y='{y + 13}' text-anchor='end' fill='#62605c'>{n}</text>"
                       f"<rect x='108' y='{y}' width='{s['median'] * scale:.1f}' height='{bar - 4}' fill='{colours.get(n, '#10825a')}'/>"
                       f"<line x1='{108 + s['min'] * scale:.1f}' x2='{108 + s['max'] * scale:.1f}' y1='{y + 7}' y2='{y + 7}' stroke='#1b1b1a'/>"
                       f"<text x='{116 + s['max'] * scale:.1f}' y='{y + 12}' fill='#1b1b1a'>{s['median']:.0f}</text>")
            y += bar
        y += gap + 10
    return "\n".join(out) + "\n</svg>\n"
