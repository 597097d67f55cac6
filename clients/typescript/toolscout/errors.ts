/**
 * What the engine, a server, or a client of it reports. `code` names the kind of error for programs,
 * such as `unknown_catalog`; the message is for people.
 */
export class ToolscoutError extends Error {
  override readonly name: string = "ToolscoutError";
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** An error answer of a server. */
export class ApiError extends ToolscoutError {
  override readonly name = "ApiError";
  /** The HTTP status. */
  readonly status: number;
  /** `invalid_request`, `auth`, `internal` or `system`. */
  readonly kind: string;
  /** The id of the request in the server's log. */
  readonly requestId: string | undefined;
  /** Seconds after which the server wants the request again. */
  readonly retryAfter: number | undefined;
  /** Where a bulk request was refused as a whole: each item with its error. */
  readonly items: readonly object[];

  constructor(
    code: string,
    message: string,
    fields: { status: number; kind?: string; requestId?: string; retryAfter?: number; items?: object[] },
  ) {
    super(code, message);
    this.status = fields.status;
    this.kind = fields.kind ?? "internal";
    this.requestId = fields.requestId;
    this.retryAfter = fields.retryAfter;
    this.items = fields.items ?? [];
  }
}

/** No answer of the server, however often it was asked. */
export class ConnectionFailedError extends ToolscoutError {
  override readonly name = "ConnectionFailedError";
}

/** Says that something has another name now. */
export function warnDeprecated(message: string): void {
  const host = (globalThis as { process?: { emitWarning?: (text: string, kind: string) => void } }).process;
  host?.emitWarning?.(message, "DeprecationWarning");
}
