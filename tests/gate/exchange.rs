//! A small exchange for electricity, over a real socket.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The API key that every request must have.
pub const TOKEN: &str = "s3cret-exchange-key";

/// A running exchange.
pub struct Exchange {
    pub address: SocketAddr,
    state: SharedExchange,
}

type SharedExchange = Arc<Mutex<ExchangeState>>;

#[derive(Default)]
struct ExchangeState {
    users: BTreeSet<String>,
    orders: Vec<Value>,
    /// Every request, as `METHOD path body`.
    requests: Vec<String>,
}

impl Exchange {
    pub async fn open() -> Self {
        let exchange = SharedExchange::default();
        let routes = Router::new()
            .route("/v1/orderBook", get(order_book))
            .route("/v1/wallet/{user}", get(wallet))
            .route("/v1/orders", post(place))
            .route("/v1/orders/{id}", delete(cancel))
            .route("/v1/users/{user}/exists", get(exists))
            .route("/v1/users", post(register))
            .route("/v1/simulations", post(simulate))
            .route("/v1/reports/{id}", get(report))
            .layer(middleware::from_fn_with_state(
                exchange.clone(),
                record_request,
            ))
            .with_state(exchange.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Exchange {
            address,
            state: exchange,
        }
    }

    /// Every request so far.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    /// The orders that are open.
    pub fn orders(&self) -> Vec<Value> {
        self.state.lock().unwrap().orders.clone()
    }
}

async fn record_request(
    State(exchange): State<SharedExchange>,
    request: Request,
    next: Next,
) -> Response {
    let authorized = request
        .headers()
        .get(header::AUTHORIZATION)
        .is_some_and(|key| *key == format!("Bearer {TOKEN}"));
    let uri = request
        .uri()
        .path_and_query()
        .map(ToString::to_string)
        .unwrap_or_default();
    exchange
        .lock()
        .unwrap()
        .requests
        .push(format!("{} {uri}", request.method()));
    if authorized {
        next.run(request).await
    } else {
        StatusCode::UNAUTHORIZED.into_response()
    }
}

async fn order_book(State(exchange): State<SharedExchange>) -> Json<Value> {
    Json(
        json!({ "best": { "side": "SELL", "price": 7.5, "quantity": 9000 }, "open": exchange.lock().unwrap().orders.len() }),
    )
}

async fn wallet(Path(user): Path<String>) -> Json<Value> {
    Json(json!({ "userId": user, "balance": 1250 }))
}

async fn place(State(exchange): State<SharedExchange>, Json(mut order): Json<Value>) -> Response {
    let mut books = exchange.lock().unwrap();
    if order["quantity"]
        .as_i64()
        .is_none_or(|quantity| quantity > 9000)
    {
        return (StatusCode::CONFLICT, "no such quantity is offered").into_response();
    }
    order["orderId"] = (books.orders.len() + 1).into();
    books.orders.push(order.clone());
    Json(order).into_response()
}

async fn cancel(State(exchange): State<SharedExchange>, Path(id): Path<u64>) -> StatusCode {
    let mut books = exchange.lock().unwrap();
    let before = books.orders.len();
    books.orders.retain(|order| order["orderId"] != id);
    if books.orders.len() < before {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::NOT_FOUND
    }
}

async fn exists(State(exchange): State<SharedExchange>, Path(user): Path<String>) -> Json<Value> {
    Json(json!({ "exists": exchange.lock().unwrap().users.contains(&user) }))
}

async fn register(State(exchange): State<SharedExchange>, Json(user): Json<Value>) -> Json<Value> {
    let name = user["userId"].as_str().unwrap_or_default().to_owned();
    exchange.lock().unwrap().users.insert(name);
    Json(json!({ "registered": true }))
}

async fn simulate(State(exchange): State<SharedExchange>, Json(wish): Json<Value>) -> Response {
    if !exchange
        .lock()
        .unwrap()
        .users
        .contains(wish["userId"].as_str().unwrap_or_default())
    {
        return (StatusCode::FORBIDDEN, "register first").into_response();
    }
    Json(json!({ "simulationId": "sim-7", "days": wish["days"], "profit": 42 })).into_response()
}

async fn report(Path(id): Path<String>) -> Json<Value> {
    Json(json!({ "report": format!("{id}: profit 42") }))
}
