//! Tables as each engine describes them, and what is said about them.

use super::*;
use crate::cli::doctor::Level;

fn mapping() -> OwnTable {
    let text = "[shops.default.order_table]\ntable = \"t_order\"\norder_no = \"order_sn\"\namount = \"pay_amount\"\n\
        amount_unit = \"yuan\"\nstatus = \"status\"\npending = [\"NEW\"]\npaid = \"PAID\"\nclosed = \"CANCELLED\"\n\
        paid_at = \"pay_time\"\npaid_at_as = \"datetime_beijing\"\ntrade_no = \"transaction_id\"\n";
    let config = crate::config::read("payonce.toml".as_ref(), text.to_owned().into(), &[]).config;
    let (_, table) = config.order_tables.into_iter().next().unwrap();
    (*table).clone()
}

fn column(name: &str, kind: &str, length: Option<i64>) -> OwnColumn {
    OwnColumn { name: name.to_owned(), kind: kind.to_owned(), folds: None, length, words: Vec::new() }
}

fn good() -> OwnSchema {
    OwnSchema {
        columns: vec![
            column("order_sn", "varchar", Some(64)),
            column("pay_amount", "decimal", None),
            column("status", "varchar", Some(16)),
            column("pay_time", "datetime", None),
            column("transaction_id", "varchar", Some(64)),
        ],
        is_unique: true,
        not_transactional: None,
        statuses: vec![(Some("NEW".to_owned()), 3), (Some("SHIPPED".to_owned()), 1)],
        statements: vec!["SELECT 1".to_owned()],
    }
}

fn said(table: &OwnTable, schema: &OwnSchema) -> Vec<String> {
    let mut findings = Findings::default();
    judge(&mut findings, "a", table, schema, "mysql");
    findings.0.into_iter().filter(|finding| finding.level != Level::Ok).map(|finding| finding.what).collect()
}

#[test]
fn a_table_that_fits_is_told_with_its_statements() {
    assert_eq!(said(&mapping(), &good()), Vec::<String>::new());
    let mut findings = Findings::default();
    judge(&mut findings, "a", &mapping(), &good(), "mysql");
    let all: Vec<&str> = findings.0.iter().map(|finding| finding.what.as_str()).collect();
    assert_eq!(all, ["left alone: SHIPPED (1)", "will be run: SELECT 1"]);
}

#[test]
fn what_does_not_fit_is_told() {
    type Change = fn(&mut OwnSchema);
    let table: [(&str, Change); 14] = [
        ("there is no table t_order", |schema| schema.columns.clear()),
        ("has no column pay_amount", |schema| drop(schema.columns.remove(1))),
        ("out_trade_no is a text", |schema| schema.columns[0].kind = "bigint".to_owned()),
        ("no unique index", |schema| schema.is_unique = false),
        ("O1a and O1A", |schema| schema.columns[0].folds = Some("utf8mb4_general_ci".to_owned())),
        ("cannot hold 0.1", |schema| schema.columns[1].kind = "double".to_owned()),
        ("amount_unit = \"yuan\"", |schema| schema.columns[1].kind = "int".to_owned()),
        ("cannot hold the status Text(\"CANCELLED\")", |schema| schema.columns[2].length = Some(8)),
        ("an ENUM of NEW, PAID", |schema| schema.columns[2].words = vec!["NEW".to_owned(), "PAID".to_owned()]),
        ("cannot hold the status Text(\"NEW\")", |schema| schema.columns[2].kind = "tinyint".to_owned()),
        ("datetime_beijing", |schema| schema.columns[3].kind = "timestamp".to_owned()),
        ("up to 64 characters", |schema| schema.columns[4].length = Some(28)),
        ("MyISAM", |schema| schema.not_transactional = Some("MyISAM".to_owned())),
        ("none of the mapped statuses", |schema| schema.statuses = vec![(Some("new".to_owned()), 3)]),
    ];
    for (want, change) in table {
        let mut schema = good();
        change(&mut schema);
        let said = said(&mapping(), &schema);
        assert!(said.iter().any(|what| what.contains(want)), "{want}: {said:?}");
    }
}
