import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ERROR_CODES } from '../../src/core/errors.ts';
import { metricsOf } from '../../src/http/metrics.ts';
import { parseMetrics } from './support/prometheus.ts';
import { startServer, type TestServer } from './support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.close());

describe('what the server says of itself', () => {
  it('/healthz', async () => {
    expect(await server.get('/healthz')).toMatchObject({ status: 200, json: { status: 'ok' } });
  });

  it('/readyz', async () => {
    expect(await server.get('/readyz')).toMatchObject({ status: 200, json: { ready: true, reasons: [] } });
  });

  it('/metrics, by the conventions of Prometheus and without a label per topic', async () => {
    await server.enqueue('metrics', { payload: 1 }, { payload: 2 });
    const { text, headers } = await server.get('/metrics');
    expect(headers['content-type']).toMatch(/^text\/plain; version=0\.0\.4/);
    expect(text).toMatch(/^ebbmark_tasks_ready 2$/m);
    expect(text).toMatch(/^ebbmark_store_bytes [1-9]\d+$/m);
    expect(text).toMatch(/^ebbmark_store_free_bytes \d+$/m);
    expect(text).toMatch(/^# TYPE ebbmark_tasks_enqueued_total counter\nebbmark_tasks_enqueued_total 2$/m);
    expect((await server.get('/metrics')).text).toMatch(/^ebbmark_tasks_enqueued_total 2$/m);
    expect(text).toMatch(/^ebbmark_outcomes_unknown_total\{resolved="landed"\} 0$/m);
    for (const name of parseMetrics(text).keys()) expect(name).toMatch(/^ebbmark_[a-z_]+$/);
  });

  it('/status, in text for people, with harmless names', async () => {
    const evil = `\u202e\u001b[31m${'😀'.repeat(50)}`.replaceAll('\u001b', '');
    await server.enqueue(evil, { payload: 1 });
    await server.enqueue('x'.repeat(255), { payload: 1 });
    const { text, headers } = await server.get('/status');
    expect(headers['content-type']).toBe('text/plain; charset=utf-8');
    expect(text).toMatch(/^Ebbmark \d+\.\d+\.\d+, up .+, store /);
    expect(text).toContain('\\u{202e}[31m😀');
    expect(text).not.toContain('\u202e');
    expect(text).not.toContain('x'.repeat(128));
    expect(text).toContain(`${'x'.repeat(127)}…`);
  });

  it('/status, in JSON for programs', async () => {
    const { json } = await server.call('GET', '/status', { headers: { accept: 'application/json' } });
    expect(json).toMatchObject({
      version: expect.any(String),
      // The page may be a second old.
      queue: {
        ...server.queue.status(),
        lastScanAt: json.queue.lastScanAt,
        oldestReadyMs: expect.any(Number),
      },
      topics: expect.any(Array),
    });
  });

  it('/metrics, all of one moment', async () => {
    let looks = 0;
    const status = () => {
      looks++;
      return { ...server.queue.status(), ready: looks, dead: looks };
    };
    const metrics = metricsOf({
      status,
      busiest: async () => [],
      measures: () => server.queue.measures(),
      readiness: () => server.queue.readiness(),
    });
    looks = 0;
    expect(await metrics.read()).toMatch(/^ebbmark_tasks_ready 1$[\s\S]*^ebbmark_tasks_dead 1$/m);
    expect(looks).toBe(1);
  });

  it('/ leads to /docs', async () => {
    expect(await server.get('/')).toMatchObject({ status: 302, headers: { location: '/docs' } });
  });

  it('answers HEAD', async () => {
    expect(await server.call('HEAD', '/healthz')).toMatchObject({ status: 200, text: '' });
  });
});

describe('/docs', () => {
  it('is a page, with what it needs', async () => {
    const page = await server.get('/docs');
    expect(page).toMatchObject({ status: 200, text: expect.stringContaining('swagger-ui') });
    expect(page.headers['content-security-policy']).not.toContain('upgrade-insecure-requests');
    for (const [, file] of page.text.matchAll(/(?:src|href)="(\/docs\/[^"]+\.(?:js|css))"/g)) {
      expect((await server.get(file!)).status, file).toBe(200);
    }
  });

  it('explains every code where the type of a problem leads', async () => {
    const { text } = await server.get('/docs/errors');
    for (const [code, title] of Object.entries(ERROR_CODES)) {
      expect(text).toContain(`id="${code}"`);
      expect(text).toContain(title);
    }
  });

  it('describes every call of the design in OpenAPI', async () => {
    const { json } = await server.get('/docs/json');
    expect(json.openapi).toBe('3.1.0');
    const calls = Object.entries(
      json.paths as Record<string, Record<string, { operationId: string; responses: object }>>,
    )
      .flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`))
      .sort();
    expect(calls).toEqual(
      [
        'POST /v1/topics/{topic}/tasks',
        'GET /v1/topics/{topic}/tasks',
        'GET /v1/topics/{topic}/tasks/{id}',
        'DELETE /v1/topics/{topic}/tasks/{id}',
        'PATCH /v1/topics/{topic}/tasks/{id}',
        'POST /v1/leases',
        'POST /v1/leases/settle',
        'GET /v1/topics',
        'GET /v1/topics/{topic}',
        'PUT /v1/topics/{topic}',
        'DELETE /v1/topics/{topic}',
        'GET /v1/schedules',
        'GET /v1/schedules/{name}',
        'PUT /v1/schedules/{name}',
        'DELETE /v1/schedules/{name}',
        'GET /v1/admin/backup',
        'GET /v1/admin/topics/{topic}/cursors',
        'GET /v1/admin/topics/{topic}/why',
        'POST /v1/admin/topics/{topic}/pause',
        'POST /v1/admin/topics/{topic}/resume',
        'POST /v1/admin/topics/{topic}/redrive',
        'POST /v1/admin/topics/{topic}/scan',
        'POST /v1/admin/keys',
        'GET /v1/admin/keys',
        'DELETE /v1/admin/keys/{id}',
        'GET /healthz',
        'GET /readyz',
        'GET /metrics',
        'GET /status',
        'GET /docs/errors',
      ].sort(),
    );
    for (const methods of Object.values(json.paths) as Record<
      string,
      { operationId?: string; summary?: string; responses: Record<string, { description: string }> }
    >[]) {
      for (const operation of Object.values(methods)) {
        expect(operation.operationId).toBeTruthy();
        expect(operation.summary).toBeTruthy();
        for (const { description } of Object.values(operation.responses)) {
          expect(description).toBeTruthy();
          expect(description, operation.operationId).not.toBe('Default Response');
        }
        expect(operation.responses).toHaveProperty('400');
        expect(operation.responses).toHaveProperty('503');
      }
    }
  });
});

describe('every answer', () => {
  it.each(['/healthz', '/v1/topics', '/status', '/nowhere', '/docs/', '/docs/errors', '/v1/topics?limit=x'])(
    'says what browsers and caches have to keep from: %s',
    async (path) => {
      const { headers } = await server.get(path);
      expect(headers).toMatchObject({ 'x-content-type-options': 'nosniff', 'referrer-policy': 'no-referrer' });
      if (path !== '/docs/') expect(headers['cache-control']).toBe('no-store');
    },
  );

  it('lets no page of another site read it', async () => {
    const { headers } = await server.call('GET', '/v1/topics', { headers: { origin: 'http://example.org' } });
    expect(Object.keys(headers).filter((name) => name.startsWith('access-control-'))).toEqual([]);
    const preflight = await server.call('OPTIONS', '/v1/leases', { headers: { origin: 'http://example.org' } });
    expect(preflight.status).toBe(405);
  });
});
