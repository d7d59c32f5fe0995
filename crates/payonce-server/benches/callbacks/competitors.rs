//! Who is measured: one table. Another competitor is one more entry, however foreign its program is.
//!
//! A competitor is a command that prints where it listens (`child`) and takes callbacks at any path. Here: the
//! table, and how each is configured and started. Not here: what the controls do (`controls`), how books are
//! made and audited (`books`).

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome,
    books::Books,
    presigned::{ACCOUNT, Keys, WINDOW},
};

/// What becomes of the two effects that a booking owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effects {
    /// None are configured, or it knows none.
    None,
    /// Written with the booking, and due in an hour: nothing delivers them meanwhile.
    Stored,
    /// Written with the booking and delivered by workers of the same process, while callbacks come in.
    Delivered,
}

/// One way of taking callbacks.
#[derive(Debug)]
pub(crate) struct Competitor {
    pub(crate) name: &'static str,
    /// One line for the conditions.
    pub(crate) what: &'static str,
    /// The same in Chinese.
    pub(crate) what_zh: &'static str,
    pub(crate) by_default: bool,
    pub(crate) books: Books,
    pub(crate) effects: Effects,
    /// Of `payonce serve`.
    log: &'static str,
    /// Whether it may answer callbacks with failure; counted in any case.
    pub(crate) may_fail: bool,
    command: fn(&Competitor, &Path, &Keys) -> Outcome<Command>,
}

pub(crate) static COMPETITORS: [Competitor; 7] = [
    Competitor {
        name: "payonce",
        what: "`payonce serve`: evidence kept, two effects per booking delivered to the log sink meanwhile, log level info into a file",
        what_zh: "`payonce serve`：保存证据，每次入账产生两个副作用，由同一进程里的投递任务同时送到 log 出口，日志级别 info，写入文件",
        by_default: true,
        books: Books::Payonce,
        effects: Effects::Delivered,
        log: "info",
        may_fail: false,
        command: payonce,
    },
    Competitor {
        name: "payonce-stored",
        what: "the same, but effects are due in an hour (like the naive handlers, it writes them and delivers none) and the log level is warn",
        what_zh: "同上，但副作用一小时后才到期（与朴素写法一样只写不投），日志级别 warn",
        by_default: true,
        books: Books::Payonce,
        effects: Effects::Stored,
        log: "warn",
        may_fail: false,
        command: payonce,
    },
    Competitor {
        name: "payonce-quiet",
        what: "`payonce` at log level warn: what the log lines cost",
        what_zh: "`payonce`，日志级别 warn：看日志的代价",
        by_default: false,
        books: Books::Payonce,
        effects: Effects::Delivered,
        log: "warn",
        may_fail: false,
        command: payonce,
    },
    Competitor {
        name: "payonce-bare",
        what: "`payonce` without effects at log level warn: what the effects cost",
        what_zh: "`payonce`，不配置副作用，日志级别 warn：看副作用的代价",
        by_default: false,
        books: Books::Payonce,
        effects: Effects::None,
        log: "warn",
        may_fail: false,
        command: payonce,
    },
    Competitor {
        name: "ceiling",
        what: "verifies, decrypts, reads and answers 204 with the same channel code and HTTP library; no database, no log",
        what_zh: "上限：同样的渠道代码与 HTTP 库，只验签、解密、解析并回 204；没有数据库和日志",
        by_default: true,
        books: Books::None,
        effects: Effects::None,
        log: "",
        may_fail: false,
        command: control,
    },
    Competitor {
        name: "naive",
        what: "the ceiling's code, then SELECT order, then one transaction of five statements per request, pool of 10 connections; neither evidence nor log nor delivery",
        what_zh: "朴素：同上限的代码，先 SELECT 订单，再每请求一个五条语句的事务，10 个连接的连接池；不存证据、不写日志、不投递",
        by_default: true,
        books: Books::Plain,
        effects: Effects::None,
        log: "",
        may_fail: true,
        command: control,
    },
    Competitor {
        name: "look-then-update",
        what: "as naive, but without a unique key: looks whether the order is paid, and ships if not; counts double shipments",
        what_zh: "先查后改：同朴素，但没有唯一键；查到未支付就发货；统计重复发货",
        by_default: false,
        books: Books::Look,
        effects: Effects::None,
        log: "",
        may_fail: true,
        command: control,
    },
];

impl Competitor {
    /// Writes what it needs into `folder` and says how to start it.
    pub(crate) fn command(&self, folder: &Path, keys: &Keys) -> Outcome<Command> {
        let mut command = (self.command)(self, folder, keys)?;
        command.current_dir(folder).env_clear();
        // Nothing of the caller's settings, neither ours nor of RUST_LOG, may leak into a measurement.
        command.envs(env::vars_os().filter(|(name, _)| ["PATH", "HOME", "LANG"].iter().any(|kept| name == kept)));
        Ok(command)
    }

    pub(crate) fn database(&self, folder: &Path) -> PathBuf {
        folder.join(self.books.file())
    }
}

/// The bearer token of the admin listener.
pub(crate) const TOKEN: &str = "admin-token-of-the-benchmark";

/// The real binary with a configuration like the one that `payonce init` writes.
fn payonce(this: &Competitor, folder: &Path, keys: &Keys) -> Outcome<Command> {
    let delay = if this.effects == Effects::Stored { "1h" } else { "0s" };
    let Keys { mchid, app_id, api_v3_key, public_key_id, .. } = keys;
    let mut text = format!(
        r#"
[server]
public = "127.0.0.1:0"
admin = "127.0.0.1:0"
admin_token = "{TOKEN}"
[database]
url = "sqlite:{file}"
[log]
level = "{level}"
[accounts.{ACCOUNT}]
channel = "wechat"
mchid = "{mchid}"
app_id = "{app_id}"
api_v3_key = "{api_v3_key}"
public_key_id = "{public_key_id}"
public_key_file = "public-key.pem"
window_seconds = {WINDOW}
"#,
        file = this.books.file(),
        level = this.log,
    );
    if this.effects != Effects::None {
        for name in ["ship", "points"] {
            text +=
                &format!("[[effects]]\non = \"order.paid\"\nname = \"{name}\"\nsink = \"log\"\ndelay = \"{delay}\"\n");
        }
        text += "[sinks.log]\ntype = \"log\"\n";
    }
    fs::write(folder.join("public-key.pem"), &keys.public_key_pem)?;
    let file = folder.join("payonce.toml");
    fs::write(&file, text)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_payonce"));
    command.arg("--config").arg(file).arg("serve");
    Ok(command)
}

/// This program again, as one of its own children.
fn control(this: &Competitor, folder: &Path, keys: &Keys) -> Outcome<Command> {
    fs::write(folder.join("keys.json"), serde_json::to_vec(keys)?)?;
    let mut command = Command::new(env::current_exe()?);
    command.args(["--control", this.name, "--folder"]).arg(folder);
    Ok(command)
}
