//! A shop's own `t_order` on a server, from `payonce doctor` to the paid row, by the real program.
//!
//! The gateway logs in as a user with a password and with no right to make tables; neither the password nor anything
//! like it may be seen anywhere.

use std::process::{Command, Stdio};

use payonce_sim::{
    Platform,
    courier::{Courier, Plan},
};

use crate::{
    databases::{Connection, Database, Kind, on_each_database},
    support::Site,
};

on_each_database!(a_shop_with_a_table_of_its_own);

const PASSWORD: &str = "s3cret-of-the-database";

const MAPPING: &str = r#"
[shops.default.order_table]
table = "t_order"
order_no = "order_sn"
amount = "pay_amount"
amount_unit = "yuan"
status = "status"
pending = ["WAIT_PAY"]
paid = "PAID"
closed = ["CANCELLED"]
refunded = "REFUNDED"
paid_at = "pay_time"
paid_at_as = "datetime_beijing"
trade_no = "transaction_id"
"#;

/// What a command prints on both channels, and how it ends.
fn said(mut command: Command) -> (Option<i32>, String) {
    let done = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let text = [done.stdout, done.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(!text.contains(PASSWORD), "{text}");
    (done.status.code(), text)
}

fn doctor(site: &Site) -> (Option<i32>, String) {
    let mut doctor = site.command("doctor");
    doctor.arg("--json");
    said(doctor)
}

/// A user who may do what a gateway needs and no more: the database's URL with their name and password.
async fn narrow_user(database: &Database) -> Database {
    let Some(name) = narrow_name(database) else { return database.clone() };
    let mut admin = database.connect().await;
    let rights = match admin {
        Connection::Mysql(_) => format!(
            "DROP USER IF EXISTS {name};
             CREATE USER {name} IDENTIFIED BY '{PASSWORD}';
             GRANT SELECT, INSERT, UPDATE, DELETE ON {}.* TO {name}",
            database.url.rsplit('/').next().unwrap()
        ),
        // Users belong to the whole server: an earlier run with this number may have left one.
        _ => format!(
            "DO $$ BEGIN CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}';
               EXCEPTION WHEN duplicate_object THEN NULL; END $$;
             REVOKE CREATE ON SCHEMA public FROM PUBLIC;
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {name}"
        ),
    };
    admin.run(&rights).await;
    let (scheme, rest) = database.url.split_once("://").unwrap();
    let (_, rest) = rest.split_once('@').unwrap();
    Database { url: format!("{scheme}://{name}:{PASSWORD}@{rest}"), ..database.clone() }
}

fn narrow_name(database: &Database) -> Option<String> {
    database
        .url
        .rsplit_once("/payonce_")
        .filter(|_| database.kind != Kind::Sqlite)
        .map(|(_, rest)| format!("pay_{rest}"))
}

/// Users belong to the server and would outlive their database.
async fn drop_narrow_user(database: &Database) {
    let Some(name) = narrow_name(database) else { return };
    let mut admin = database.connect().await;
    let drop = match admin {
        Connection::Mysql(_) => format!("DROP USER {name}"),
        _ => format!("DROP OWNED BY {name}; DROP ROLE {name}"),
    };
    admin.run(&drop).await;
}

async fn a_shop_with_a_table_of_its_own(on: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::fresh(on, dir.path()).await;
    let mut shop = database.connect().await;
    shop.create_t_order().await;

    // Before the tables are there: the mapping fits, and what is missing is said. The administrator makes them.
    let by_admin = Site::on(database.clone(), MAPPING).await;
    let (code, text) = doctor(&by_admin);
    assert_eq!(code, Some(0), "{text}");
    let missing = if on == Kind::Sqlite { "has no tables of payonce" } else { "lacks migration 1" };
    // The usual collation folds, which is said of a table that fits all the same.
    let fits = if on == Kind::Mariadb { "to which O1a and O1A are one number" } else { "t_order fits its mapping" };
    assert!(text.contains(missing) && text.contains(fits), "{text}");
    let (code, text) = said(by_admin.command("migrate"));
    assert!(code == Some(0) && text.contains("applied migration 1"), "{text}");

    let mut site = Site::on(narrow_user(&database).await, MAPPING).await;
    let (code, text) = doctor(&site);
    assert_eq!(code, Some(0), "{text}");
    let update = match on {
        Kind::Mariadb => "will be run: UPDATE `t_order` AS t SET t.`status` = ?",
        Kind::Sqlite => "will be run: UPDATE \\\"t_order\\\" AS t SET \\\"status\\\" = ?2",
        _ => "will be run: UPDATE \\\"t_order\\\" AS t SET \\\"status\\\" = $2",
    };
    let server = match on {
        Kind::Mariadb => "MariaDB 10.11",
        Kind::Postgres15 => "PostgreSQL 15.",
        Kind::Postgres18 => "PostgreSQL 18.",
        Kind::Sqlite => "sqlite:",
    };
    for wanted in [update, server, "commits are durable", fits] {
        assert!(text.contains(wanted), "{wanted} is missing: {text}");
    }

    let orders = [("WX-PAID", Platform::Wechat, "1.00"), ("ALI-PAID", Platform::Alipay, "1.00")];
    for (order_no, _, yuan) in orders.iter().copied().chain([("WX-WRONG", Platform::Wechat, "2.00")]) {
        shop.run(&format!(
            "INSERT INTO t_order (order_sn, pay_amount, status) VALUES ('{order_no}', {yuan}, 'WAIT_PAY')"
        ))
        .await;
    }
    shop.run("CREATE TABLE stock (sku VARCHAR(64) PRIMARY KEY, n INTEGER NOT NULL)").await;
    for order_no in ["WX-PAID", "ALI-PAID", "WX-WRONG"] {
        site.stock_by(&mut shop, order_no).await;
    }
    // Their right is to the tables that are there.
    let _same = narrow_user(&database).await;
    site.start().await;
    let plan = Plan { times: 20, concurrency: 10, ..Plan::default() };
    for (order_no, platform) in
        [("WX-PAID", Platform::Wechat), ("ALI-PAID", Platform::Alipay), ("WX-WRONG", Platform::Wechat)]
    {
        let urls = [site.url(platform)];
        let report = Courier.deliver_many(&urls, site.paid(platform, order_no), plan, |_, _| {}).await;
        assert_eq!((report.taken, report.refused, report.failed), (20, 0, 0), "{:?}\n{}", report.by_status, site.log());
    }
    site.settle().await;
    for (order_no, ..) in orders {
        let columns = ["status", "transaction_id", "pay_time"].map(|column| shop.as_text(column)).join(", ");
        let row = shop.rows(&format!("SELECT {columns} FROM t_order WHERE order_sn = '{order_no}'")).await;
        let [status, trade_no, at] = &row[0][..] else { panic!("{row:?}") };
        assert_eq!(status.as_deref(), Some("PAID"));
        assert!(trade_no.as_deref().unwrap().starts_with("4200") && at.is_some(), "{row:?}");
        let counts = |table| format!("SELECT count(*) FROM payonce_{table} WHERE order_no = '{order_no}'");
        assert_eq!(shop.count(&counts("idempotency")).await, 1);
        assert_eq!(shop.count(&counts("order_flow")).await, 1);
        assert_eq!(shop.count(&format!("{} AND state = 'done'", counts("effect"))).await, 3);
        assert_eq!(shop.count(&format!("SELECT n FROM stock WHERE sku = '{order_no}'")).await, 99);
    }
    let wrong = shop.text("SELECT status FROM t_order WHERE order_sn = 'WX-WRONG'").await;
    assert_eq!(wrong.as_deref(), Some("WAIT_PAY"), "another amount pays nothing");
    // A mapping that stopped fitting is found.
    let (code, log) = site.stop().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains(PASSWORD), "{log}");
    shop.run("ALTER TABLE t_order RENAME COLUMN pay_time TO paid_on").await;
    let (code, text) = doctor(&site);
    assert!(code == Some(1) && text.contains("t_order has no column pay_time"), "{text}");
    drop_narrow_user(&database).await;
}
