//! Values of options in any sensible kind (wire protocol, sections 5.6 and 7.1).

use borzoi_wire::Value;

/// A yes or no: typed, as text, or as 0 or 1.
pub(crate) fn flag_value(value: &Value<'_>) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Text(text) => match text.trim() {
            text if text.eq_ignore_ascii_case("true") || text == "1" => Some(true),
            text if text.eq_ignore_ascii_case("false") || text == "0" => Some(false),
            _ => None,
        },
        other => match integer(other)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
    }
}

/// A text.
pub(crate) fn text_value<'a>(value: &'a Value<'_>) -> Option<&'a str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

/// A number: typed or as text.
pub(crate) fn number_value(value: &Value<'_>) -> Option<u64> {
    match value {
        Value::Text(text) => text.trim().parse().ok(),
        other => integer(other),
    }
}

/// A size in bytes: typed, or text such as `15GB`; `u64::MAX` for unlimited, 0 for the default.
pub(crate) fn size_value(value: &Value<'_>) -> Option<u64> {
    let Value::Text(text) = value else { return integer(value) };
    match text.trim().to_ascii_lowercase().as_str() {
        "unlimited" => Some(u64::MAX),
        "server_default" | "default" => Some(0),
        text => parse_size(text),
    }
}

/// A time in microseconds: typed, or text such as `2h 30min`; `u64::MAX` for never, 0 for the
/// default.
pub(crate) fn duration_value(value: &Value<'_>) -> Option<u64> {
    let Value::Text(text) = value else { return integer(value) };
    match text.trim().to_ascii_lowercase().as_str() {
        "unlimited" | "none" | "never_expire" | "never" => Some(u64::MAX),
        "server_default" | "default" | "disabled" => Some(0),
        _ => parse_duration(text.trim()),
    }
}

/// A number that is not negative, from any integer kind.
fn integer(value: &Value<'_>) -> Option<u64> {
    match *value {
        Value::I8(number) => u64::try_from(number).ok(),
        Value::I16(number) => u64::try_from(number).ok(),
        Value::I32(number) => u64::try_from(number).ok(),
        Value::I64(number) => u64::try_from(number).ok(),
        Value::I128(number) => u64::try_from(number).ok(),
        Value::U8(number) => Some(u64::from(number)),
        Value::U16(number) => Some(u64::from(number)),
        Value::U32(number) => Some(u64::from(number)),
        Value::U64(number) => Some(number),
        Value::U128(number) => u64::try_from(number).ok(),
        Value::Raw(_) | Value::Text(_) | Value::Bool(_) | Value::F32(_) | Value::F64(_) => None,
    }
}

/// A decimal number with an optional fraction at the start of `text`, in millionths.
fn leading_number(text: &str) -> Option<(u128, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 20 || fraction.len() > 6 || fraction.contains('.') {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let mut millionths: u128 = 0;
    for place in 0..6 {
        let digit = fraction.as_bytes().get(place).map_or(0, |byte| byte - b'0');
        millionths = millionths * 10 + u128::from(digit);
    }
    Some((whole * 1_000_000 + millionths, rest))
}

/// A size such as `10 mib`, `1.5gb` (lower case) or a plain number of bytes.
fn parse_size(text: &str) -> Option<u64> {
    let (millionths, unit) = leading_number(text)?;
    let unit = unit.trim();
    let (base, prefix): (u128, &str) = match unit.strip_suffix("ib") {
        Some(prefix) => (1_024, prefix),
        None => (1_000, unit.strip_suffix('b').unwrap_or(unit)),
    };
    let power = match prefix {
        "" if base == 1_000 => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let bytes = millionths.checked_mul(base.checked_pow(power)?)? / 1_000_000;
    u64::try_from(bytes).ok()
}

/// A time such as `15days 2min 2s` or a plain number of microseconds.
fn parse_duration(text: &str) -> Option<u64> {
    if let Ok(micros) = text.parse::<u64>() {
        return Some(micros);
    }
    let mut total: u128 = 0;
    let mut left = text.trim();
    if left.is_empty() {
        return None;
    }
    while !left.is_empty() {
        let (millionths, rest) = leading_number(left)?;
        let rest = rest.trim_start();
        let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at_checked(end)?;
        let nanos = millionths.checked_mul(unit_nanos(unit)?)? / 1_000_000;
        total = total.checked_add(nanos)?;
        left = rest.trim_start();
    }
    u64::try_from(total / 1_000).ok()
}

/// Nanoseconds of a unit of time.
fn unit_nanos(unit: &str) -> Option<u128> {
    const SECOND: u128 = 1_000_000_000;
    Some(match unit {
        "ns" | "nsec" | "nanos" => 1,
        "us" | "µs" | "usec" | "micros" => 1_000,
        "ms" | "msec" | "millis" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600 * SECOND,
        "d" | "day" | "days" => 86_400 * SECOND,
        "w" | "wk" | "wks" | "week" | "weeks" => 604_800 * SECOND,
        "M" | "month" | "months" => 2_630_016 * SECOND,
        "y" | "yr" | "yrs" | "year" | "years" => 31_557_600 * SECOND,
        _ => return None,
    })
}
