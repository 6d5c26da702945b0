"""The result as text and as one HTML page with plots, without any library."""
import html as markup

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .7em;border-bottom:1px solid #ccc;text-align:right}
td:first-child,th:first-child{text-align:left}.FAILED{color:#b00020;font-weight:600}.missing,.skipped{color:#777}
.passed{color:#1b7a34}svg{max-width:100%}small{color:#666}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}td,th{border-color:#444}small{color:#999}}"""


def head(result):
    where = "on the EMULATED device: figures of time mean nothing" if result["dry"] else ""
    verdict = {0: "all that ran is right", 1: "something is WRONG", 3: f"no GPU was reached: {result['no_gpu']}"}
    end = "" if result["complete"] else f", UNFINISHED: ended in the step {result['steps'][-1]['name']}" if result["steps"] else ""
    return f"gpu_check {where}: {verdict[result['exit_code']]}{end} ({result['seconds']} s)".replace(" :", ":")


def text(result):
    lines = ["", head(result), ""]
    for step in result["steps"]:
        lines.append(f"{step['outcome']:8} {step['name']} ({step['seconds']} s)")
        lines += ["           " + line for line in step["lines"]]
    return "\n".join(lines)


def kernel_table(rows):
    body = "".join(
        f"<tr><td>{markup.escape(row['name'])}<td>{markup.escape(row['shape'])}<td>{1e6 * row['seconds']:.4g}"
        f"<td>{row['bytes_per_s'] / 1e9:.4g}<td>{row['flop_per_s'] / 1e12:.4g}<td>{100 * row['share']:.0f} % of {row['of']}"
        for row in rows)
    return ("<h2>Kernels</h2><table><tr><th>kernel<th>shape<th>µs<th>GB/s<th>TFLOP/s<th>share of what was measured here" + body +
            "</table>")


def model_table(title, rows):
    body = "".join(
        f"<tr><td>{row['prompt_tokens']}<td>{row['batch']}<td>{1e3 * row['ttft_s']:.4g}<td>{100 * row.get('prefill_share', 0):.0f} %"
        f"<td>{1e3 * row['tpot_s']:.4g}<td>{100 * row.get('tpot_share', 0):.0f} %<td>{row['output_tokens_per_s']:.5g}" for row in rows)
    return (f"<h2>{title}</h2><table><tr><th>prompt<th>batch<th>TTFT ms<th>of cuBLAS peak<th>TPOT ms<th>of the floor"
            f"<th>output tok/s{body}</table>")


def bars(title, unit, rows):
    """Horizontal bars: (label, value, mark or None), the mark a line at what the machine would allow."""
    if not rows:
        return ""
    top = max(max(value, mark or 0) for _, value, mark in rows) or 1
    parts, y = [], 6
    for label, value, mark in rows:
        width = 480 * value / top
        parts.append(f'<text x="0" y="{y + 14}" font-size="13" fill="currentColor">{markup.escape(label)}</text>'
                     f'<rect x="200" y="{y + 2}" width="{width:.1f}" height="15" fill="#4a7fb5"/>'
                     f'<text x="{205 + width:.1f}" y="{y + 14}" font-size="12" fill="currentColor">{value:.4g} {unit}</text>')
        if mark:
            x = 200 + 480 * mark / top
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 1}" y2="{y + 20}" stroke="#c0392b" stroke-width="2"/>')
        y += 24
    return (f"<h3>{markup.escape(title)}</h3><svg viewBox='0 0 800 {y + 4}' role='img' aria-label='{markup.escape(title)}'>"
            + "".join(parts) + "</svg>")


def html(result):
    page = [f"<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'><title>gpu_check</title>"
            f"<style>{STYLE}</style><h1>gpu_check</h1><p>{markup.escape(head(result))}</p>"]
    card = result.get("card")
    if card:
        page.append(f"<p>{markup.escape(str(card.get('card', '')))}: read {card['read_bytes_per_s'] / 1e9:.4g} GB/s, cuBLASLt "
                    f"{card['cublas_flop_per_s'] / 1e12:.4g} TFLOP/s, both measured in this run; every share is of these.</p>")
    page.append("<h2>Steps</h2><table><tr><th>step<th>outcome<th>s")
    for step in result["steps"]:
        notes = "<br>".join(f"<small>{markup.escape(line)}</small>" for line in step["lines"])
        page.append(f"<tr><td>{step['name']}<br>{notes}<td class='{step['outcome']}'>{step['outcome']}<td>{step['seconds']}")
    page.append("</table>")
    latency, batches = result.get("latency", []) + result.get("long_prompts", []), result.get("batches", [])
    if latency:
        page.append(model_table("Llama-3.1-8B shapes, dummy weights, one request", latency))
        page.append(bars("Time per output token by context; the red line is the floor", "ms", [
            (f"{row['prompt_tokens']} tokens", 1e3 * row["tpot_s"], 1e3 * row.get("tpot_floor_s", 0) or None) for row in latency]))
        page.append(bars("Time to first token by prompt", "ms", [
            (f"{row['prompt_tokens']} tokens", 1e3 * row["ttft_s"], None) for row in latency]))
    if batches:
        page.append(model_table("The same model, many requests", batches))
        page.append(bars("Output tokens a second by batch", "tok/s", [
            (f"batch {row['batch']}", row["output_tokens_per_s"], None) for row in batches]))
    peers = result.get("transformers", [])
    if peers:
        page.append(bars("transformers, time per output token", "ms", [
            (f"{'compiled' if row['compiled'] else 'eager'}, {row['prompt_tokens']}", 1e3 * row["tpot_s"], None) for row in peers]))
    if result.get("kernels"):
        page.append(kernel_table(result["kernels"]))
        page.append(bars("Share of the measured limit", "%", [
            (f"{row['name']} {row['shape']}"[:34], 100 * row["share"], 100) for row in result["kernels"]]))
    return "\n".join(page)
