//! Horizontal and vertical bars made of block characters.

/// Draws a horizontal bar for `part` of `whole`, `columns` long if they are equal. A nonzero part is always visible.
pub fn horizontal(part: f64, whole: f64, columns: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = eighths(part, whole, columns);
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

/// Draws vertical bars, one column per value, as `rows` lines from the top. The highest value reaches the top.
pub fn vertical(values: &[f64], rows: usize) -> Vec<String> {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().copied().fold(0.0, f64::max);
    let heights: Vec<_> = values.iter().map(|&value| eighths(value, highest, rows)).collect();
    let row = |below: usize| {
        let text: String = heights
            .iter()
            .map(|&height| EIGHTHS[height.saturating_sub(below * 8).min(8)])
            .collect();
        text.trim_end().to_owned()
    };
    (0..rows).rev().map(row).collect()
}

/// Length of a bar of up to `cells` cells for `part` of `whole`, in eighths of a cell.
fn eighths(part: f64, whole: f64, cells: usize) -> usize {
    if part <= 0.0 || whole <= 0.0 || !part.is_finite() || !whole.is_finite() {
        return 0;
    }
    let full = cells * 8;
    ((part / whole * full as f64).round() as usize).clamp(1, full.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_length_is_proportional() {
        assert_eq!(horizontal(1.0, 1.0, 4), "████");
        assert_eq!(horizontal(0.5, 1.0, 4), "██");
        assert_eq!(horizontal(0.3, 1.0, 4), "█▎");
        assert_eq!(horizontal(1e-9, 1.0, 4), "▏");
        assert_eq!(
            (horizontal(0.0, 1.0, 4), horizontal(1.0, 0.0, 4)),
            (String::new(), String::new())
        );
    }

    #[test]
    fn vertical_bars_share_a_baseline() {
        assert_eq!(vertical(&[1.0, 4.0, 0.0, 2.0, 3.0, 0.001], 2), [" █  ▄", "▄█ ██▁"]);
        assert_eq!(vertical(&[0.0, 0.0], 2), ["", ""]);
        assert_eq!(vertical(&[], 1), [""]);
    }
}
