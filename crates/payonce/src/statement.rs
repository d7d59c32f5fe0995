//! The user's own statement, an effect of the sink `sql`: it runs in the transaction that marks the effect done.
//!
//! Here: reading `UPDATE stock SET n = n - 1 WHERE sku = :meta.sku` into text and bound parameters. Values
//! come from the effect's payload and are always bound, never spliced. Not here: running it (`store`).

use std::fmt;

use serde_json::Value;

/// A statement with named parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The text around the parameters; one more than there are parameters.
    parts: Vec<String>,
    /// Paths into the payload, in the order of the text.
    params: Vec<String>,
    /// How many rows it must affect; `None` if any number is right.
    pub expect_rows: Option<u64>,
}

/// Why a text is no such statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementError(String);

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StatementError {}

/// The members of a payload that may be named; `meta.` and `fact.` take any further part.
const MEMBERS: [&str; 9] = ["key", "event", "name", "shop", "order_no", "kind", "amount", "currency", "occurred_at"];

impl Statement {
    /// Reads a text. `:name` outside of literals, quoted names and comments is a parameter; `::` is not.
    pub fn parse(text: &str, expect_rows: Option<u64>) -> Result<Self, StatementError> {
        let mut parts = vec![String::new()];
        let mut params = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let skip = skipped(rest).max(first.len_utf8());
            if first == ':' && !rest.starts_with("::") && !text[..text.len() - rest.len()].ends_with(':') {
                let name: &str = rest[1..]
                    .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
                    .next()
                    .unwrap_or("");
                let name = name.trim_end_matches('.');
                if !name.is_empty() {
                    check(name)?;
                    params.push(name.to_owned());
                    parts.push(String::new());
                    rest = &rest[1 + name.len()..];
                    continue;
                }
            }
            if let Some(part) = parts.last_mut() {
                part.push_str(&rest[..skip]);
            }
            rest = &rest[skip..];
        }
        if text.trim().is_empty() {
            return Err(StatementError("the statement is empty".to_owned()));
        }
        Ok(Self { parts, params, expect_rows })
    }

    /// The text with an engine's placeholders; `placeholder` is given the parameter's position from 1.
    pub fn text(&self, placeholder: impl Fn(usize) -> String) -> String {
        let mut out = String::new();
        for (index, part) in self.parts.iter().enumerate() {
            if index > 0 {
                out.push_str(&placeholder(index));
            }
            out.push_str(part);
        }
        out
    }

    /// The values to bind, from an effect's payload. What the payload does not have is NULL.
    pub fn values(&self, payload: &Value) -> Vec<Value> {
        let find = |path: &String| path.split('.').try_fold(payload, |value, name| value.get(name));
        self.params.iter().map(|path| find(path).cloned().unwrap_or(Value::Null)).collect()
    }
}

fn check(name: &str) -> Result<(), StatementError> {
    let known = MEMBERS.contains(&name) || name.starts_with("meta.") || name.starts_with("fact.");
    if known {
        Ok(())
    } else {
        Err(StatementError(format!(
            "unknown parameter :{name}; there are {}, :meta.… and :fact.…",
            MEMBERS.map(|member| format!(":{member}")).join(", ")
        )))
    }
}

/// Bytes at the start that are a literal, a quoted name or a comment; 0 if none is.
fn skipped(rest: &str) -> usize {
    let until = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    match rest.as_bytes() {
        [b'\'', ..] => until("'", 1),
        [b'"', ..] => until("\"", 1),
        [b'`', ..] => until("`", 1),
        [b'-', b'-', ..] => until("\n", 2),
        [b'/', b'*', ..] => until("*/", 2),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_and_bound_never_spliced() {
        let statement =
            Statement::parse("UPDATE stock SET n = n - 1 WHERE sku = :meta.sku AND n >= :amount", Some(1)).unwrap();
        assert_eq!(statement.text(|_| "?".into()), "UPDATE stock SET n = n - 1 WHERE sku = ? AND n >= ?");
        assert_eq!(statement.text(|n| format!("${n}")), "UPDATE stock SET n = n - 1 WHERE sku = $1 AND n >= $2");
        let payload = serde_json::json!({"amount": 5, "meta": {"sku": "'; DROP TABLE stock; --"}});
        assert_eq!(statement.values(&payload), [serde_json::json!("'; DROP TABLE stock; --"), serde_json::json!(5)]);
    }

    #[test]
    fn literals_comments_and_casts_are_left_alone() {
        let text = "SELECT ':key', \":key\", `:key`, x::text -- :key\n, /* :key */ :key";
        let statement = Statement::parse(text, None).unwrap();
        assert_eq!(statement.text(|_| "?".into()), text.strip_suffix(":key").unwrap().to_owned() + "?");
        assert_eq!(statement.values(&serde_json::json!({"key": "k"})), [serde_json::json!("k")]);
        assert!(Statement::parse("SELECT :nonsense", None).unwrap_err().to_string().contains(":order_no"));
        assert!(Statement::parse("  ", None).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = Statement::parse(&text, None);
        }
    }
}
