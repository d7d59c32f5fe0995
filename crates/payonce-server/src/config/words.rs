//! The words of the configuration, and which of them somebody may have meant.
//!
//! Here: every section and key, for the masking of lines that cannot be read; the nearest word; durations.
//! Not here: what a key means (the readers).

use std::time::Duration;

/// Every name of a section or key. A test holds it against what the readers ask for.
pub(super) const ALL: &[&str] = &[
    "server",
    "database",
    "shops",
    "accounts",
    "effects",
    "sinks",
    "policy",
    "log",
    "public",
    "admin",
    "public_url",
    "admin_token",
    "admin_token_file",
    "answer_within",
    "header_read_timeout",
    "body_read_timeout",
    "keep_alive_idle",
    "drain",
    "max_body_bytes",
    "max_connections",
    "queue",
    "batch",
    "url",
    "url_file",
    "accept_unsafe_settings",
    "channel",
    "shop",
    "mchid",
    "mode",
    "app_id",
    "app_ids",
    "api_v3_key",
    "api_v3_key_file",
    "previous_api_v3_key",
    "previous_api_v3_key_file",
    "platform_certificate_files",
    "public_key_id",
    "public_key",
    "public_key_file",
    "window_seconds",
    "seller_id",
    "alipay_public_key",
    "alipay_public_key_file",
    "alipay_certificate_files",
    "sign_type",
    "app_public_key",
    "app_public_key_file",
    "app_private_key",
    "app_private_key_file",
    "on",
    "name",
    "sink",
    "when",
    "kind",
    "retry",
    "delay",
    "after",
    "statement",
    "expect_rows",
    "type",
    "secret",
    "secret_file",
    "secrets",
    "timeout",
    "deliveries",
    "allow_private",
    "unknown_order_grace",
    "late_payment",
    "format",
    "level",
    "order_table",
    "table",
    "order_no",
    "amount",
    "amount_unit",
    "status",
    "pending",
    "paid",
    "closed",
    "refunded",
    "paid_at",
    "paid_at_as",
    "trade_no",
    "currency",
];

/// The word that was probably meant: at most a third of its letters away, and at most three.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let word: Vec<char> = word.chars().take(64).collect();
    known
        .map(|known| (distance(&word, &known.to_ascii_lowercase().chars().collect::<Vec<_>>()), known))
        .filter(|(distance, known)| *distance <= (known.chars().count() / 3).clamp(1, 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Edits between two words, where swapping neighbours is one.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, right) in b.iter().enumerate() {
            let mut best = (row[j] + usize::from(left != right)).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *left == b[j - 1] && a[i - 1] == *right {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

/// `1m`, `1h30m`, `500ms`; units are ms, s, m, h, d.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit_end =
            rest[digits..].find(|char: char| !char.is_ascii_alphabetic()).map_or(rest.len(), |at| at + digits);
        let millis = match &rest[digits..unit_end] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(millis)?))?;
        rest = rest[unit_end..].trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_exactly() {
        for (text, millis) in
            [("1m", 60_000), ("500ms", 500), ("1h30m", 5_400_000), ("400d", 34_560_000_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for odd in
            ["", " ", "5", "m", "-1m", "1.5h", "1 minute", "1M", "99999999999999999999s", "999999999999999999d", "五m"]
        {
            assert_eq!(duration(odd), None, "{odd}");
        }
    }

    #[test]
    fn the_list_of_words_is_what_the_readers_ask_for() {
        let text = "[shops.a]\n[accounts.a]\nchannel = \"wechat\"\n[accounts.b]\nchannel = \"alipay\"\n\
            [[effects]]\nsink = \"sql\"\n[sinks.a]\ntype = \"http\"\n";
        let known = crate::config::read("payonce.toml".as_ref(), text.to_owned().into(), &[]).known;
        let known: std::collections::BTreeSet<&str> =
            known.iter().filter_map(|path| path.rsplit('.').next()).filter(|word| *word != "*").collect();
        assert_eq!(known, ALL.iter().copied().collect());
    }

    #[test]
    fn the_nearest_word_is_near() {
        let near = |word| nearest(word, ALL.iter().copied());
        assert_eq!(near("mch_id"), Some("mchid"));
        assert_eq!(near("adress"), None);
        assert_eq!(near("api_v3_kye"), Some("api_v3_key"));
        assert_eq!(near("acounts"), Some("accounts"));
        assert_eq!(near("x"), None);
        assert_eq!(near(&"x".repeat(10_000)), None);
    }
}
