//! Who is measured: one table. Another competitor is one more entry, however foreign its program is.
//!
//! A competitor is a command that prints where it listens (`child`) and takes callbacks at any path. Here: the
//! table, and how each is configured and started. Not here: what the controls do (`controls`), other people's
//! libraries (`benches/foreign`), how books are made and audited (`books`).

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Outcome,
    books::Books,
    engines::{Database, Engine},
    presigned::{ACCOUNT, Keys, WINDOW},
    servers,
};

/// What becomes of the two effects that a booking owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effects {
    /// None are configured, or it knows none.
    None,
    /// Written with the booking; nothing delivers them meanwhile.
    Stored,
    /// Written with the booking and delivered while callbacks come in.
    Delivered,
}

/// What takes the callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// `payonce serve` at this log level.
    Payonce(&'static str),
    /// This program as a child of itself.
    Control,
    /// A file of `benches/foreign/node`.
    Node(&'static str),
    /// A file of `benches/foreign/python`.
    Python(&'static str),
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
    pub(crate) engine: Engine,
    pub(crate) books: Books,
    pub(crate) effects: Effects,
    program: Program,
}

pub(crate) static COMPETITORS: [Competitor; 16] = [
    Competitor {
        name: "payonce",
        what: "`payonce serve` on SQLite: evidence kept, two effects per booking delivered to the log sink meanwhile, log level info into a file",
        what_zh: "SQLite 上的 `payonce serve`：保存证据，每次入账产生两个副作用，由同一进程里的投递任务同时送到 log 出口，日志级别 info，写入文件",
        by_default: true,
        engine: Engine::Sqlite,
        books: Books::Payonce,
        effects: Effects::Delivered,
        program: Program::Payonce("info"),
    },
    Competitor {
        name: "payonce-stored",
        what: "the same, but effects are due in an hour (like the handlers by hand, it writes them and delivers none) and the log level is warn",
        what_zh: "同上，但副作用一小时后才到期（与手写的处理程序一样只写不投），日志级别 warn",
        by_default: true,
        engine: Engine::Sqlite,
        books: Books::Payonce,
        effects: Effects::Stored,
        program: Program::Payonce("warn"),
    },
    Competitor {
        name: "payonce-quiet",
        what: "`payonce` at log level warn: what the log lines cost",
        what_zh: "`payonce`，日志级别 warn：看日志的代价",
        by_default: false,
        engine: Engine::Sqlite,
        books: Books::Payonce,
        effects: Effects::Delivered,
        program: Program::Payonce("warn"),
    },
    Competitor {
        name: "payonce-bare",
        what: "`payonce` without effects at log level warn: what the effects cost",
        what_zh: "`payonce`，不配置副作用，日志级别 warn：看副作用的代价",
        by_default: false,
        engine: Engine::Sqlite,
        books: Books::Payonce,
        effects: Effects::None,
        program: Program::Payonce("warn"),
    },
    Competitor {
        name: "payonce-pg",
        what: "`payonce serve` on PostgreSQL, otherwise as `payonce`",
        what_zh: "PostgreSQL 上的 `payonce serve`，其余同 `payonce`",
        by_default: true,
        engine: Engine::Postgres,
        books: Books::Payonce,
        effects: Effects::Delivered,
        program: Program::Payonce("info"),
    },
    Competitor {
        name: "payonce-pg-stored",
        what: "`payonce serve` on PostgreSQL, otherwise as `payonce-stored`",
        what_zh: "PostgreSQL 上的 `payonce serve`，其余同 `payonce-stored`",
        by_default: true,
        engine: Engine::Postgres,
        books: Books::Payonce,
        effects: Effects::Stored,
        program: Program::Payonce("warn"),
    },
    Competitor {
        name: "payonce-mariadb",
        what: "`payonce serve` on MariaDB, otherwise as `payonce`",
        what_zh: "MariaDB 上的 `payonce serve`，其余同 `payonce`",
        by_default: true,
        engine: Engine::Mariadb,
        books: Books::Payonce,
        effects: Effects::Delivered,
        program: Program::Payonce("info"),
    },
    Competitor {
        name: "payonce-mariadb-stored",
        what: "`payonce serve` on MariaDB, otherwise as `payonce-stored`",
        what_zh: "MariaDB 上的 `payonce serve`，其余同 `payonce-stored`",
        by_default: true,
        engine: Engine::Mariadb,
        books: Books::Payonce,
        effects: Effects::Stored,
        program: Program::Payonce("warn"),
    },
    Competitor {
        name: "ceiling",
        what: "verifies, decrypts, reads and answers 204 with the same channel code and HTTP library; no database, no log",
        what_zh: "上限：同样的渠道代码与 HTTP 库，只验签、解密、解析并回 204；没有数据库和日志",
        by_default: true,
        engine: Engine::Sqlite,
        books: Books::None,
        effects: Effects::None,
        program: Program::Control,
    },
    Competitor {
        name: "naive",
        what: "the ceiling's code, then SELECT order, then one transaction of five statements per request on SQLite, sqlx pool of 10 connections; neither evidence nor log nor delivery",
        what_zh: "朴素：同上限的代码，先 SELECT 订单，再每请求一个五条语句的事务，SQLite，10 个连接的 sqlx 连接池；不存证据、不写日志、不投递",
        by_default: true,
        engine: Engine::Sqlite,
        books: Books::Plain,
        effects: Effects::Stored,
        program: Program::Control,
    },
    Competitor {
        name: "axum-pg",
        what: "the ceiling's code (hyper, the HTTP library of axum), then by hand on PostgreSQL through an sqlx pool of 10: SELECT order, and if it is not paid, one transaction with INSERT key, conditional UPDATE, INSERT flow, INSERT both effects; neither evidence nor log nor delivery",
        what_zh: "同上限的代码（hyper，即 axum 的 HTTP 库），然后在 PostgreSQL 上手写，10 个连接的 sqlx 连接池：先 SELECT 订单，未支付则开一个事务：INSERT 幂等键、条件 UPDATE、INSERT 流水、INSERT 两个副作用；不存证据、不写日志、不投递",
        by_default: true,
        engine: Engine::Postgres,
        books: Books::Plain,
        effects: Effects::Stored,
        program: Program::Control,
    },
    Competitor {
        name: "axum-mariadb",
        what: "as axum-pg, on MariaDB",
        what_zh: "同 axum-pg，MariaDB",
        by_default: true,
        engine: Engine::Mariadb,
        books: Books::Plain,
        effects: Effects::Stored,
        program: Program::Control,
    },
    Competitor {
        name: "node-pg",
        what: "Node.js, fastify, node:crypto with the key parsed once, `pg` pool of 10 with named statements on PostgreSQL; the same statements as axum-pg; no log, no delivery",
        what_zh: "Node.js、fastify、node:crypto（公钥只解析一次）、`pg` 连接池 10 个连接、命名预编译语句，PostgreSQL；语句同 axum-pg；不写日志、不投递",
        by_default: true,
        engine: Engine::Postgres,
        books: Books::Plain,
        effects: Effects::Stored,
        program: Program::Node("node-pg.mjs"),
    },
    Competitor {
        name: "fastapi",
        what: "FastAPI on uvicorn (uvloop, httptools, a worker process per core), verified by `wechatpayv3`, asyncpg with 10 connections on PostgreSQL; the same statements as axum-pg; no log, no delivery",
        what_zh: "uvicorn 上的 FastAPI（uvloop、httptools、每核一个工作进程），用 `wechatpayv3` 验签，asyncpg 共 10 个连接，PostgreSQL；语句同 axum-pg；不写日志、不投递",
        by_default: true,
        engine: Engine::Postgres,
        books: Books::Plain,
        effects: Effects::Stored,
        program: Program::Python("callbacks.py"),
    },
    Competitor {
        name: "node-graphile-worker",
        what: "as node-pg, but the two effects are jobs of graphile-worker, added in the same transaction and executed meanwhile by a second process",
        what_zh: "同 node-pg，但两个副作用是 graphile-worker 的任务，在同一事务里加入，由第二个进程同时执行",
        by_default: true,
        engine: Engine::Postgres,
        books: Books::Jobs,
        effects: Effects::Delivered,
        program: Program::Node("node-graphile-worker.mjs"),
    },
    Competitor {
        name: "look-then-update",
        what: "WRONG: as axum-pg, but without a unique key: looks whether the order is paid, and ships if not; double shipments are counted",
        what_zh: "错误示范：同 axum-pg，但没有唯一键：查到未支付就发货；统计重复发货",
        by_default: true,
        engine: Engine::Postgres,
        books: Books::Look,
        effects: Effects::Stored,
        program: Program::Control,
    },
];

/// Environment variable with the folder of other people's packages, which `cargo xtask bench` installs.
const FOREIGN: &str = "PAYONCE_BENCH_FOREIGN";

/// By name.
pub(crate) fn find(name: &str) -> Option<&'static Competitor> {
    COMPETITORS.iter().find(|competitor| competitor.name == name)
}

impl Competitor {
    /// What must be there before: names of services, `npm`, `pypi`.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &'static str> {
        let packages = match self.program {
            Program::Node(_) => Some("npm"),
            Program::Python(_) => Some("pypi"),
            Program::Payonce(_) | Program::Control => None,
        };
        let service = if self.books == Books::None { None } else { servers::service(self.engine) };
        service.map(|(name, _)| name).into_iter().chain(packages)
    }

    pub(crate) const fn is_payonce(&self) -> bool {
        matches!(self.program, Program::Payonce(_))
    }

    /// Whether it may answer callbacks with failure; counted in any case.
    pub(crate) fn may_fail(&self) -> bool {
        !self.is_payonce() && self.books != Books::None
    }

    /// Writes what it needs into `folder` and says how to start it.
    pub(crate) fn command(&self, database: &Database, folder: &Path, keys: &Keys) -> Outcome<Command> {
        let keys_file = folder.join("keys.json");
        if !self.is_payonce() {
            fs::write(&keys_file, serde_json::to_vec(keys)?)?;
        }
        let foreign = |program: PathBuf, script: PathBuf| {
            let mut command = Command::new(program);
            command.arg(script).arg(&keys_file).arg(&database.address);
            command
        };
        let home = foreign_home();
        let mut command = match self.program {
            Program::Payonce(log) => return gateway(database, self.effects, log, folder, keys, "serve"),
            Program::Control => {
                let mut command = Command::new(env::current_exe()?);
                command.args(["--control", self.name, "--folder"]).arg(folder);
                command.arg("--database").arg(&database.address);
                command
            }
            Program::Node(script) => foreign("node".into(), copy_scripts(&home)?.join(script)),
            Program::Python(script) => foreign(home.join("venv/bin/python"), sources().join("python").join(script)),
        };
        strip(&mut command, folder);
        Ok(command)
    }
}

/// Nothing of the caller's settings, neither ours nor of RUST_LOG, may leak into a measurement.
fn strip(command: &mut Command, folder: &Path) {
    command.current_dir(folder).env_clear();
    command.envs(env::vars_os().filter(|(name, _)| ["PATH", "HOME", "LANG"].iter().any(|kept| name == kept)));
    // Python would write what it compiled beside the sources.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches").join("foreign")
}

fn foreign_home() -> PathBuf {
    env::var_os(FOREIGN).map_or_else(|| crate::home().join("foreign"), PathBuf::from)
}

/// Node looks for packages in the folders above the file that wants them, so the sources go beside them.
fn copy_scripts(home: &Path) -> Outcome<PathBuf> {
    let beside = home.join("scripts");
    if !home.join("node_modules").is_dir() {
        return Err(format!("no packages in {}; `cargo xtask bench` installs them", home.display()).into());
    }
    fs::create_dir_all(&beside)?;
    for entry in fs::read_dir(sources().join("node"))? {
        let entry = entry?;
        fs::copy(entry.path(), beside.join(entry.file_name()))?;
    }
    Ok(beside)
}

/// The bearer token of the admin listener.
pub(crate) const TOKEN: &str = "admin-token-of-the-benchmark";

/// The real binary with a configuration like the one that `payonce init` writes.
pub(crate) fn gateway(
    database: &Database,
    effects: Effects,
    log: &str,
    folder: &Path,
    keys: &Keys,
    verb: &str,
) -> Outcome<Command> {
    let delay = if effects == Effects::Stored { "1h" } else { "0s" };
    let Keys { mchid, app_id, api_v3_key, public_key_id, .. } = keys;
    let mut text = format!(
        r#"
[server]
public = "127.0.0.1:0"
admin = "127.0.0.1:0"
admin_token = "{TOKEN}"
[database]
url = "{url}"
[log]
level = "{log}"
[accounts.{ACCOUNT}]
channel = "wechat"
mchid = "{mchid}"
app_id = "{app_id}"
api_v3_key = "{api_v3_key}"
public_key_id = "{public_key_id}"
public_key_file = "public-key.pem"
window_seconds = {WINDOW}
"#,
        url = database.gateway_url(),
    );
    if effects != Effects::None {
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
    command.arg("--config").arg(file).arg(verb);
    strip(&mut command, folder);
    Ok(command)
}
