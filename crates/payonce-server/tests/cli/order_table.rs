//! `[shops.NAME.order_table]`: read strictly, and held against the live table.

use payonce::own_table::{AmountUnit, TimeForm, Word};
use payonce_server::config;
use sqlx::{Connection, SqliteConnection};

use crate::support::{Folder, WHOLE};

const MAPPING: &str = r#"
[shops.default.order_table]
table = "t_order"
order_no = "order_sn"
amount = "pay_amount"
amount_unit = "yuan"
status = "status"
pending = ["WAIT_PAY", "NEW"]
paid = "PAID"
closed = "CANCELLED"
paid_at = "pay_time"
paid_at_as = "datetime_beijing"
trade_no = "transaction_id"
"#;

fn said(text: &str) -> Vec<String> {
    let folder = Folder::with(WHOLE);
    let text = format!("{WHOLE}\n{text}");
    let loaded = config::read(&folder.path("payonce.toml"), text.into(), &[]);
    loaded.faults.into_iter().map(|fault| format!("{}; {}", fault.what, fault.todo)).collect()
}

#[test]
fn a_mapping_is_read() {
    let folder = Folder::with(WHOLE);
    let text = format!("{WHOLE}\n{MAPPING}");
    let loaded = config::read(&folder.path("payonce.toml"), text.into(), &[]);
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    let rules = loaded.config.rules();
    let (shop, table) = rules.own_tables.first_key_value().unwrap();
    assert_eq!((shop.as_str(), table.table.to_string().as_str()), ("default", "t_order"));
    assert_eq!((table.amount_unit, table.kind.as_str(), table.currency.as_str()), (AmountUnit::Yuan, "goods", "CNY"));
    assert_eq!(table.pending, ["WAIT_PAY", "NEW"].map(|word| Word::Text(word.to_owned())));
    assert_eq!(table.paid_at.as_ref().map(|(_, form)| *form), Some(TimeForm::DatetimeBeijing));
    assert_eq!(table.merchants.len(), 2, "the number spaces of the shop's accounts");
    let numbers = MAPPING.replace("[\"WAIT_PAY\", \"NEW\"]", "0").replace("\"PAID\"", "1");
    let numbers = numbers.replace("\"CANCELLED\"", "[-1, 9]");
    assert_eq!(said(&numbers), Vec::<String>::new());
}

#[test]
fn what_is_wrong_with_a_mapping_is_told() {
    let with = |from: &str, to: &str| said(&MAPPING.replace(from, to));
    let table: [(&str, &str, &str); 16] = [
        ("table = \"t_order\"", "", "`table` is missing"),
        ("\"t_order\"", "\"t_order; DROP TABLE x\"", "is no name of a table"),
        ("\"t_order\"", "\"a.b.c\"", "is no name of a table"),
        ("\"order_sn\"", "\"order-sn\"", "`order_no` is no name"),
        ("\"order_sn\"", "\"\"", "`order_no` is empty"),
        ("amount_unit = \"yuan\"", "", "`amount_unit` is missing"),
        ("\"yuan\"", "\"cent\"", "`amount_unit`: `cent` is not known"),
        ("pending = [\"WAIT_PAY\", \"NEW\"]", "", "`pending` is missing"),
        ("pending = [\"WAIT_PAY\", \"NEW\"]", "pending = []", "names no status"),
        ("paid = \"PAID\"", "paid = [\"PAID\", \"DONE\"]", "only one can be written"),
        ("paid = \"PAID\"", "paid = 1.5", "must be a text or a whole number"),
        ("\"CANCELLED\"", "\"PAID\"", "two meanings"),
        ("\"pay_time\"", "\"status\"", "one column twice"),
        ("paid_at_as = \"datetime_beijing\"", "", "`paid_at_as` is missing"),
        ("paid_at = \"pay_time\"", "", "`paid_at_as` is given without `paid_at`"),
        ("trade_no", "trade_number", "unknown key `trade_number`"),
    ];
    for (from, to, want) in table {
        let said = with(from, to);
        assert!(said.iter().any(|what| what.contains(want)), "{to}: {said:?}");
    }
}

#[tokio::test]
async fn doctor_holds_it_against_the_table_and_shows_the_statements() {
    let folder = Folder::with(&format!("{WHOLE}\n{MAPPING}"));
    let done = folder.run(&["doctor"]);
    assert!(done.out.contains("the database is not there yet"), "{}", done.out);
    assert_eq!(folder.run(&["migrate"]).code, Some(0));
    let done = folder.run(&["doctor", "--json"]);
    assert!(done.out.contains("there is no table t_order in payonce's database"), "{}", done.out);
    assert_eq!(done.code, Some(1));
    let path = folder.path("payonce.db").display().to_string();
    let mut database = SqliteConnection::connect(&format!("sqlite:{path}")).await.unwrap();
    let create = "CREATE TABLE t_order (order_sn TEXT COLLATE NOCASE UNIQUE, pay_amount DECIMAL(10, 2), status TEXT,
                  pay_time DATETIME, transaction_id TEXT);
                  INSERT INTO t_order (order_sn, pay_amount, status) VALUES ('1', 1, 'NEW'), ('2', 1, 'SHIPPED')";
    sqlx::raw_sql(create).execute(&mut database).await.unwrap();
    let done = folder.run(&["doctor", "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.out);
    for text in [
        "to which O1a and O1A are one number",
        "left alone: SHIPPED (1)",
        "will be run: SELECT CAST(t.\\\"order_sn\\\" AS TEXT)",
        "will be run: UPDATE \\\"t_order\\\" AS t SET \\\"status\\\" = ?2",
    ] {
        assert!(done.out.contains(text), "{text}: {}", done.out);
    }
}
