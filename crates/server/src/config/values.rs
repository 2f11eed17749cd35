//! Values as people write them: sizes, durations, choices.

use std::time::Duration;

/// Bytes from `"1024"`, `"64 MiB"`, `"1.5GB"`. Binary and decimal units are told apart.
#[must_use]
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        "ti" | "tib" => 1 << 40,
        _ => return None,
    };
    scaled(number, factor)
}

/// A span of time from `"500 ms"`, `"5s"`, `"1 m"`, `"2h"`, `"7 days"`. A unit is needed.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let micros: u64 = match unit.to_ascii_lowercase().as_str() {
        "us" | "µs" => 1,
        "ms" => 1_000,
        "s" | "sec" | "second" | "seconds" => 1_000_000,
        "m" | "min" | "minute" | "minutes" => 60_000_000,
        "h" | "hour" | "hours" => 3_600_000_000,
        "d" | "day" | "days" => 86_400_000_000,
        _ => return None,
    };
    scaled(number, micros).map(Duration::from_micros)
}

/// A whole number, with `_` allowed between digits.
#[must_use]
pub fn whole<T: std::str::FromStr>(text: &str) -> Option<T> {
    let plain: String = text.trim().chars().filter(|c| *c != '_').collect();
    plain.parse().ok()
}

/// `true` or `false`.
#[must_use]
pub fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "on" | "yes" => Some(true),
        "false" | "0" | "off" | "no" => Some(false),
        _ => None,
    }
}

/// Number and unit.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    (!number.is_empty()).then_some((number, unit.trim()))
}

/// `number` times `factor`, exactly for whole numbers; none if it does not fit.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let plain: String = number.chars().filter(|c| *c != '_').collect();
    if let Ok(whole) = plain.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let fraction: f64 = plain.parse().ok()?;
    let value = fraction * factor as f64;
    (value.is_finite() && (0.0..1e18).contains(&value)).then_some(value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_tell_binary_from_decimal_units() {
        assert_eq!(size("1024"), Some(1_024));
        assert_eq!(size("64 MiB"), Some(64 << 20));
        assert_eq!(size("64MB"), Some(64_000_000));
        assert_eq!(size("1.5 KiB"), Some(1_536));
        assert_eq!(size("1_000"), Some(1_000));
        for bad in ["", "MiB", "-1", "1 XB", "99999999999 TiB", "1..2 KB"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("1.5 s"), Some(Duration::from_millis(1_500)));
        assert_eq!(duration("7 days"), Some(Duration::from_secs(7 * 86_400)));
        for bad in ["", "5", "s", "5 fortnights", "-1 s"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
